"""Labels of episodes: how their outcome is known, what went wrong, and where they left the way of a success."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.curation.agent_flan import opening_lengths
from tracewheel.curation.divergence import Divergence, Path, first_divergence
from tracewheel.curation.faults import Fault, find_fault

if TYPE_CHECKING:
    import pandas

# How an outcome is known, the most reliable first.
VERIFIED, LOGGED, JUDGED, NOT_KNOWN = "verified", "logged", "judged", "unknown"
SOURCES = (VERIFIED, LOGGED, JUDGED, NOT_KNOWN)
LABEL_COLUMNS = (
    "outcome_source",
    "label",
    "failure_kind",
    "failure_detail",
    "diverges_at",
    "diverges_from",
    "diverges_message",
    "diverges_way",
)
NEEDED = ("id", "task_id", "messages", "tools")
# With more successes than so many, a failure is compared with the shortest of them.
MOST_SUCCESSES = 50


@dataclass(frozen=True)
class Outcome:
    """An episode's outcome from 0 to 1, None where it is unknown, and how it is known."""

    source: str
    value: float | None


def outcome_of(verified: float | None, logged: float | None, judged: float | None = None) -> Outcome:
    """The most reliable of what is known of an episode; None and NaN are unknown, and never 0.

    Args:
        verified: What the verifier says of the replayed episode.
        logged: The reward in the log.
        judged: What a judge, a model or a person, said of it.
    """
    for source, value in ((VERIFIED, verified), (LOGGED, logged), (JUDGED, judged)):
        if value is not None and not math.isnan(value):
            return Outcome(source, float(value))
    return Outcome(NOT_KNOWN, None)


def label_episodes(
    episodes: pandas.DataFrame, *, replay_proves: bool = True, ignored_tools: Collection[str] = ()
) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """Label episodes.

    Args:
        episodes: A row each, with `id`, `task_id` (episodes with "" are compared with no other), `messages` and `tools`
            (JSON text). Taken into account where they are there: `success` (as replayed), `outcome` (as logged),
            `judged`, `breakdown` (JSON text), `ended`, `stop_reason`, and `opening`: how many of the messages are an earlier
            conversation, in which nothing is a fault of the episode.
        replay_proves: Whether `success` is proof. That of a recorded environment is none: it says how near an episode comes
            to another one, so it counts as judged, and the logged reward goes before.
        ignored_tools: Tools whose calls say nothing of what was done, as one to think aloud with.

    Returns:
        The frame with `LABEL_COLUMNS`: `outcome_source` (one of `SOURCES`), `label` (0 to 1, NaN where unknown);
        for failures, whose label is known and below 1, `failure_kind` and `failure_detail` ("" for all others), and, where
        the task has a success, the step of the first divergence from it (`diverges_at`, <NA> where there is none),
        its trace (`diverges_from`), the position of the message that differs (`diverges_message`) and how
        (`diverges_way`). And a report: how many of each source and failure kind, mean label by source, mean step.

    Raises:
        DataError: a column is missing.
    """
    import pandas

    missing = [name for name in NEEDED if name not in episodes]
    if missing:
        raise DataError(f"episodes without a column '{missing[0]}' cannot be labelled")
    openings = opening_lengths(episodes)
    records = [
        _own({str(name): value for name, value in row.items()}, opening)
        for row, opening in zip(episodes.to_dict("records"), openings, strict=True)
    ]
    outcomes = [_outcome(record, replay_proves) for record in records]
    successes = _successes(records, outcomes)
    rows = []
    for record, outcome in zip(records, outcomes, strict=True):
        failed = outcome.value is not None and outcome.value < 1.0
        divergence = _divergence(record, successes) if failed else None
        fault = _fault(record, divergence, ignored_tools) if failed else None
        rows.append(_labels(outcome, fault, divergence))
    labels = pandas.DataFrame(rows, columns=list(LABEL_COLUMNS), index=episodes.index)
    labels = labels.astype({"label": "float64", "diverges_at": "Int64", "diverges_message": "Int64"})
    labels["diverges_message"] += openings
    kept = episodes.drop(columns=[name for name in LABEL_COLUMNS if name in episodes])
    return pandas.concat([kept, labels], axis=1), label_report(labels)


def label_report(labels: pandas.DataFrame) -> dict[str, Any]:
    """Counts of what `label_episodes` found; a mean over nothing is None."""
    known = labels["label"].notna()
    steps = labels["diverges_at"].dropna()
    return {
        "outcomes": {source: int((labels["outcome_source"] == source).sum()) for source in SOURCES},
        "mean_label": {
            source: float(labels.loc[known & (labels["outcome_source"] == source), "label"].mean())
            for source in SOURCES
            if (known & (labels["outcome_source"] == source)).any()
        },
        "failures": dict(sorted(Counter(kind for kind in labels["failure_kind"] if kind).items())),
        "diverging": len(steps),
        "mean_divergence_step": float(steps.mean()) if len(steps) else None,
    }


def conversation_ended(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a conversation came to an end: its last assistant turn only speaks, or calls what ends it, so without a reply."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    return last is not None and (not last.get("tool_calls") or messages[-1] is last)


def path_of(record: Mapping[str, Any]) -> Path:
    """The calls of a row with `id`, `messages` and `tools`."""
    return Path.of(str(record["id"]), json.loads(record["messages"]), json.loads(record["tools"]))


def _own(record: dict[str, Any], opening: int) -> dict[str, Any]:
    """A row with what was said in the episode itself."""
    return {**record, "messages": json.dumps(json.loads(record["messages"])[opening:])} if opening else record


def _outcome(record: Mapping[str, Any], replay_proves: bool) -> Outcome:
    replayed, logged, judged = (_number(record.get(name)) for name in ("success", "outcome", "judged"))
    if replay_proves:
        return outcome_of(replayed, logged, judged)
    judgement = outcome_of(None, None, judged)
    return outcome_of(None, logged, replayed if judgement.value is None else judgement.value)


def _successes(records: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> dict[str, list[Path]]:
    """The paths of the successes of each task."""
    found: dict[str, list[Path]] = defaultdict(list)
    failed = {
        record["task_id"]
        for record, outcome in zip(records, outcomes, strict=True)
        if outcome.value is not None and outcome.value < 1.0
    }
    for record, outcome in zip(records, outcomes, strict=True):
        if outcome.value is not None and outcome.value >= 1.0 and record["task_id"] in failed and record["task_id"]:
            found[record["task_id"]].append(path_of(record))
    return {
        task_id: sorted(paths, key=lambda path: (len(path.keys), path.trace_id))[:MOST_SUCCESSES]
        for task_id, paths in found.items()
    }


def _divergence(record: Mapping[str, Any], successes: Mapping[str, list[Path]]) -> Divergence | None:
    known = successes.get(record["task_id"])
    return first_divergence(path_of(record), known) if known else None


def _fault(record: Mapping[str, Any], divergence: Divergence | None, ignored: Collection[str]) -> Fault:
    messages = json.loads(record["messages"])
    breakdown, ended, stop = record.get("breakdown"), record.get("ended"), record.get("stop_reason")
    return find_fault(
        messages,
        json.loads(record["tools"]),
        json.loads(breakdown) if isinstance(breakdown, str) and breakdown else {},
        bool(ended) if isinstance(ended, bool) and ended else conversation_ended(messages),
        divergence=divergence,
        stop_reason=stop if isinstance(stop, str) else "",
        ignored_tools=ignored,
    )


def _labels(outcome: Outcome, fault: Fault | None, divergence: Divergence | None) -> tuple[Any, ...]:
    return (
        outcome.source,
        math.nan if outcome.value is None else outcome.value,
        fault.kind if fault else "",
        fault.detail if fault else "",
        divergence.step if divergence else None,
        divergence.reference if divergence else "",
        divergence.message if divergence else None,
        divergence.way if divergence else "",
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
