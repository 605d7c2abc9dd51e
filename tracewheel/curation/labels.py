"""Labels of episodes: outcome and its source, fault, and divergence from a success."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.curation.divergence import Divergence, Path, first_divergence
from tracewheel.curation.faults import Fault, FinishedEpisode, find_fault
from tracewheel.curation.openings import opening_lengths

if TYPE_CHECKING:
    import pandas

# Sources of an outcome, the most reliable first.
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
# A failure is compared with at most this many successes, the shortest ones.
MOST_SUCCESSES = 50


@dataclass(frozen=True)
class Label:
    """An episode's outcome from 0 to 1, None where unknown, and its source (one of `SOURCES`)."""

    source: str
    value: float | None

    @property
    def succeeded(self) -> bool:
        return self.value is not None and self.value >= 1.0

    @property
    def failed(self) -> bool:
        return self.value is not None and self.value < 1.0


def label_of(verified: float | None, logged: float | None, judged: float | None = None) -> Label:
    """The most reliable known outcome of an episode. None and NaN are unknown, never 0.

    Args:
        verified: The verifier's score of the replayed episode.
        logged: The reward in the log.
        judged: The score of a judge, a model or a person.
    """
    for source, value in ((VERIFIED, verified), (LOGGED, logged), (JUDGED, judged)):
        if value is not None and not math.isnan(value):
            return Label(source, float(value))
    return Label(NOT_KNOWN, None)


def label_episodes(episodes: pandas.DataFrame, *, replay_proves: bool = True) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """Label episodes.

    Args:
        episodes: Has `id`, `task_id` ("" is compared with no other episode), `messages` and `tools` (JSON text). Optional:
            `success` (replayed), `outcome` (logged), `judged`, `breakdown` (JSON text), `ended`, `stop_reason`, and
            `opening`: the number of messages of an earlier conversation, which is not checked for faults.
        replay_proves: Whether `success` is proof. A recorded environment's is not: it measures similarity to another
            episode, so it counts as judged, after the logged reward.

    Returns:
        The frame with `LABEL_COLUMNS`, and the report of `label_report`. The columns: `outcome_source` (one of `SOURCES`)
        and `label` (0 to 1, NaN where unknown); for failures (label below 1) `failure_kind` and `failure_detail` ("" for all
        others), and where the task has a success, the step of the first divergence from it (`diverges_at`, <NA> where there
        is none), its trace (`diverges_from`), the position of the message that differs (`diverges_message`) and how it
        differs (`diverges_way`).

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
    known = [_label(record, replay_proves) for record in records]
    successes = _successes(records, known)
    rows = []
    for record, label in zip(records, known, strict=True):
        divergence = _divergence(record, successes) if label.failed else None
        fault = _fault(record, divergence) if label.failed else None
        rows.append(_columns(label, fault, divergence))
    labels = pandas.DataFrame(rows, columns=list(LABEL_COLUMNS), index=episodes.index)
    labels = labels.astype({"label": "float64", "diverges_at": "Int64", "diverges_message": "Int64"})
    labels["diverges_message"] += openings
    kept = episodes.drop(columns=[name for name in LABEL_COLUMNS if name in episodes])
    return pandas.concat([kept, labels], axis=1), label_report(labels)


def label_report(labels: pandas.DataFrame) -> dict[str, Any]:
    """Counts of sources, failures and divergences, mean label by source, and the mean step (None without any)."""
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
    """Whether a conversation ended: its last assistant turn makes no call, or a call that ended it and has no reply."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    return last is not None and (not last.get("tool_calls") or messages[-1] is last)


def path_of(record: Mapping[str, Any]) -> Path:
    """The calls of a row with `id`, `messages` and `tools`."""
    return Path.of(str(record["id"]), json.loads(record["messages"]), json.loads(record["tools"]))


def _own(record: dict[str, Any], opening: int) -> dict[str, Any]:
    """The row without the messages of the opening."""
    return {**record, "messages": json.dumps(json.loads(record["messages"])[opening:])} if opening else record


def _label(record: Mapping[str, Any], replay_proves: bool) -> Label:
    replayed, logged, judged = (_number(record.get(name)) for name in ("success", "outcome", "judged"))
    if replay_proves:
        return label_of(replayed, logged, judged)
    judgement = label_of(None, None, judged)
    return label_of(None, logged, replayed if judgement.value is None else judgement.value)


def _successes(records: Sequence[Mapping[str, Any]], labels: Sequence[Label]) -> dict[str, list[Path]]:
    """The paths of the successes of each task that also has a failure."""
    found: dict[str, list[Path]] = defaultdict(list)
    failed = {record["task_id"] for record, label in zip(records, labels, strict=True) if label.failed and record["task_id"]}
    for record, label in zip(records, labels, strict=True):
        if label.succeeded and record["task_id"] in failed:
            found[record["task_id"]].append(path_of(record))
    return {
        task_id: sorted(paths, key=lambda path: (len(path.keys), path.trace_id))[:MOST_SUCCESSES]
        for task_id, paths in found.items()
    }


def _divergence(record: Mapping[str, Any], successes: Mapping[str, list[Path]]) -> Divergence | None:
    known = successes.get(record["task_id"])
    return first_divergence(path_of(record), known) if known else None


def _fault(record: Mapping[str, Any], divergence: Divergence | None) -> Fault:
    messages = json.loads(record["messages"])
    breakdown, ended, stop = record.get("breakdown"), record.get("ended"), record.get("stop_reason")
    episode = FinishedEpisode(
        messages,
        json.loads(record["tools"]),
        json.loads(breakdown) if isinstance(breakdown, str) and breakdown else {},
        ended=bool(ended) if isinstance(ended, bool) and ended else conversation_ended(messages),
        stop_reason=stop if isinstance(stop, str) else "",
    )
    return find_fault(episode, divergence)


def _columns(label: Label, fault: Fault | None, divergence: Divergence | None) -> tuple[Any, ...]:
    return (
        label.source,
        math.nan if label.value is None else label.value,
        fault.kind if fault else "",
        fault.detail if fault else "",
        divergence.step if divergence else None,
        divergence.reference if divergence else "",
        divergence.message if divergence else None,
        divergence.way if divergence else "",
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
