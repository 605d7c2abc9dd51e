"""What the index keeps of a program's episode: its branches, what could not be matched or was lost, and who is at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracewheel.core.types import canonical_json
from tracewheel.dashboard.text import value_of


@dataclass(frozen=True)
class History:
    """What a program did with its history; all empty for an episode without one.

    Attributes:
        blame: Who is at fault; "" where nothing went wrong.
        branches: As stored.
        reasons: Why they parted, each once.
        unmatched: Requests with assistant messages that the policy did not say.
        lost: Tokens sampled for answers that nobody waited for any more.
    """

    blame: str
    branches: Sequence[Mapping[str, Any]]
    reasons: Sequence[str]
    unmatched: int
    lost: int

    @property
    def stored(self) -> tuple[str, int, str, int, int]:
        """The columns `blame`, `branches`, `reasons`, `unmatched`, `lost` of the index."""
        return self.blame, len(self.branches), ", ".join(self.reasons), self.unmatched, self.lost

    def others_than(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The messages of the branches that are not among `messages`, each once."""
        known = {canonical_json(message) for message in messages}
        found = []
        for message in (each for branch in self.branches for each in branch.get("messages") or ()):
            key = canonical_json(message)
            if isinstance(message, Mapping) and key not in known:
                known.add(key)
                found.append(message)
        return found


def history_of(row: Mapping[str, Any]) -> History:
    """The history of a stored row, whose file may lack the columns.

    Raises:
        ValueError: a column holds no JSON.
    """
    branches = value_of(row["branches"]) if row.get("branches") else []
    requests = value_of(row["requests"]) if row.get("requests") else {}
    reasons = dict.fromkeys(str(branch["reason"]) for branch in branches if branch.get("reason"))
    unmatched, lost = (int(requests.get(name) or 0) for name in ("unmatched", "lost_tokens"))
    return History(str(row.get("fault") or ""), branches, list(reasons), unmatched, lost)
