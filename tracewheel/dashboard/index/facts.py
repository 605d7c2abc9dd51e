"""What the index keeps of an episode: outcome, failure kind, flaws, tools, lengths, words, and a program's history."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracewheel.core.errors import TracewheelError
from tracewheel.core.types import canonical_json, first_turn
from tracewheel.curation.faults import FinishedEpisode, find_fault
from tracewheel.curation.labels import conversation_ended
from tracewheel.dashboard.text import value_of
from tracewheel.environments import make_environment
from tracewheel.scoring.adjustments import verifier_marks
from tracewheel.scoring.flaws import FLAWS, NO_CALL, steps_of


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


MOST_WORDS = 200_000  # characters of an episode that can be searched
SOLVED, PARTIAL, FAILED, NOT_SCORED = "solved", "partial", "failed", "not scored"


@dataclass(frozen=True)
class EpisodeFacts:
    """Facts of an episode; `fault` is "" unless it failed."""

    outcome: str
    total: float | None
    success: float | None
    fault: str
    detail: str
    flaws: str
    tools: str
    calls: int


@functools.lru_cache(maxsize=16)
def tools_of(kind: str) -> tuple[Mapping[str, Any], ...]:
    """The tools of an environment; empty where it cannot be built here."""
    try:
        return tuple(make_environment(kind).tools()) if kind else ()
    except (TracewheelError, KeyError, TypeError, AttributeError):
        return ()


def outcome_of(status: str | None, total: float | None, breakdown: Mapping[str, float]) -> tuple[str, float | None]:
    """The word for an outcome, and success as 1 or 0; None where the episode is not scored."""
    if status is None:
        return NOT_SCORED, None
    if status != "scored" or total is None or not math.isfinite(total):
        return status if status != "scored" else "unscored", None
    if float(breakdown.get("success", total)) >= 1.0:
        return SOLVED, 1.0
    return (PARTIAL if total > 0 else FAILED), 0.0


def facts_of(
    messages: Sequence[Mapping[str, Any]],
    turns: Sequence[Mapping[str, Any]],
    stop: str,
    score: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
) -> EpisodeFacts:
    """The facts of an episode.

    Args:
        messages: In OpenAI chat format.
        turns: Of the trajectory.
        stop: Its stop reason.
        score: `status`, `total` and `breakdown` (a value); empty where there is none.
        tools: What the environment offers; empty where that is not known.
    """
    breakdown = score.get("breakdown") or {}
    outcome, success = outcome_of(score.get("status"), score.get("total"), breakdown)
    names = [str(tool["function"]["name"]) for tool in tools]
    own = messages[first_turn(messages, turns) :]
    steps = {**steps_of(messages, turns, names or None), "stop_reason": stop}
    kind = detail = ""
    if success == 0.0:
        ended = conversation_ended(own)
        fault = find_fault(FinishedEpisode(own, tools, parts_of(breakdown), ended=ended, stop_reason=stop))
        kind, detail = fault.kind, fault.detail
    called = dict.fromkeys(name for message in own for name in _called(message))
    flaws = [name for name, has in FLAWS.items() if has(steps)] + ([NO_CALL] if names and not steps["calls"] else [])
    return EpisodeFacts(
        outcome,
        score.get("total"),
        success,
        kind,
        detail[:200],
        ", ".join(flaws),
        _listed(called),
        int(steps["calls"]),
    )


def parts_of(breakdown: Mapping[str, float]) -> dict[str, float]:
    """The marks of the verifiers, as they named them: of one with parts, stored as `verifier.part`, the parts alone."""
    marks = verifier_marks(breakdown)
    whole = {name.partition(".")[0] for name in marks if "." in name}
    return {name.rpartition(".")[2]: value for name, value in marks.items() if name not in whole}


def words_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """What can be searched of a conversation: all but the system's message, which all episodes share."""
    found, length = [], 0
    for message in messages:
        if message.get("role") == "system":
            continue
        for text in _texts(message):
            found.append(text)
            length += len(text)
        if length > MOST_WORDS:
            break
    return "\n".join(found)[:MOST_WORDS]


def marks_of(facts: EpisodeFacts, stop: str, history: History) -> str:
    """Words of the index that stand for what can be filtered."""
    pairs = [("outcome", facts.outcome), ("fault", facts.fault), ("stop", stop), ("blame", history.blame)]
    pairs += [("reason", reason) for reason in history.reasons]
    return " ".join(
        mark(kind, value) for kind, value in [*pairs, *(("tool", name) for name in tool_names(facts.tools))] if value
    )


def mark(kind: str, value: str) -> str:
    """A word of the index for a value, of letters and digits whatever the value is."""
    return kind[0] + hashlib.blake2s(value.encode("utf-8", "replace"), digest_size=6).hexdigest()


def tool_names(listed: str) -> list[str]:
    """The names in a stored list of tools."""
    return [name for name in listed.split("\n") if name]


def _listed(names: Mapping[str, None]) -> str:
    """Names between line ends, so that each is found whole."""
    flat = [name.replace("\n", " ")[:200] for name in list(names)[:100]]
    return f"\n{chr(10).join(flat)}\n" if flat else ""


def _called(message: Mapping[str, Any]) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        yield str((call.get("function") or {}).get("name") or "")


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (str(part.get("text") or "") for part in content if isinstance(part, dict))
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str):
            yield message[key]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield f"{function.get('name') or ''} {function.get('arguments') or ''}"
