"""What a digest keeps of an episode: outcome, failure kind, flaws, tools, lengths, words, and a program's history."""

from __future__ import annotations

import functools
import math
import re
import unicodedata
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
MOST_TOOLS, LONGEST_NAME = 100, 200
NOT_A_WORD = re.compile(r"[\W_]+")
SOLVED, PARTIAL, FAILED, NOT_SCORED = "solved", "partial", "failed", "not scored"


@dataclass(frozen=True)
class EpisodeFacts:
    """Facts of an episode; `fault` is "" unless it failed."""

    outcome: str
    total: float | None
    success: float | None
    fault: str
    detail: str
    flaws: Sequence[str]
    tools: Sequence[str]
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
        flaws,
        [name[:LONGEST_NAME] for name in list(called)[:MOST_TOOLS]],
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


def plain(text: str) -> str:
    """Text as searches compare it: words in lower case, without accents, each between two blanks."""
    if not text.isascii():
        text = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return f" {NOT_A_WORD.sub(' ', text.casefold()).strip()} "


def digest_row(row: Mapping[str, Any], score: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept of an episode.

    Args:
        row: Of its trajectory, with `tokens` and `generated` (how many) instead of the tokens.
        score: As `facts_of` takes it, with `family`.
        tools: Likewise.

    Raises:
        ValueError: a column holds no JSON.
    """
    messages, turns, stop = value_of(row["messages"]), value_of(row["turns"]), str(row["stop_reason"])
    facts, history = facts_of(messages, turns, stop, score, tools), history_of(row)
    versions = [turn["policy_version"] for turn in turns] or [row["policy_version"]]
    found = {
        "trajectory": row["id"],
        "task": row["task_id"],
        "sample": row["sample"],
        "family": score.get("family"),
        **{
            name: getattr(facts, name) for name in ("outcome", "total", "success", "fault", "detail", "flaws", "tools", "calls")
        },
        "stop": stop,
        "turns": len(turns),
        **{name: row[name] for name in ("tokens", "generated")},
        "oldest": min(versions),
        "newest": max(versions),
        "branches": len(history.branches),
        **{name: getattr(history, name) for name in ("blame", "reasons", "unmatched", "lost")},
        "words": plain(words_of([*messages, *history.others_than(messages)])),
    }
    return {name: _sound(value) for name, value in found.items()}


def _sound(value: Any) -> Any:
    """A value whose texts Parquet can hold: without halves of pairs."""
    if isinstance(value, list):
        return [_sound(one) for one in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


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
