"""What a run has measured so far, from the small files of its store: evaluations, and the figures of its iterations."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.run_record import LOOP_FILE
from tracewheel.core.store import FACTS
from tracewheel.evaluation.evaluate import EVALUATION_FILE
from tracewheel.report.finished_run import EVALUATIONS, FinishedRun, StoredEntry
from tracewheel.report.results import Estimate

METRICS_FILE = "metrics.json"
HELD_OUT, HARDER, VALIDATION = "held_out", "harder", "validation"


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of a policy.

    Attributes:
        entry: Its stored result.
        policy, split: What played what.
        greedy, sampled: Shares of solved tasks with their intervals; None where nothing is scored.
    """

    entry: str
    policy: str
    split: str
    greedy: Estimate | None
    sampled: Estimate | None


@dataclass(frozen=True)
class Iteration:
    """A complete iteration of a loop.

    Attributes:
        seconds: By stage (`rollout`, `score`, `update`, `evaluate`), as measured when each result was made; without what
            is not known.
        finished: When its last result was complete, in seconds since 1970; None where that is not known.
        metrics: Of its update, its scores and its rollouts.
        breakdown: Means of the parts of the reward.
    """

    number: int
    seconds: Mapping[str, float]
    finished: float | None
    metrics: Mapping[str, float]
    breakdown: Mapping[str, float]

    @property
    def total(self) -> float | None:
        """Seconds of all its stages; None where none is known."""
        return sum(self.seconds.values()) or None


def evaluations_of(run: FinishedRun) -> list[Evaluation]:
    """The evaluations that a run has, in the order in which it made them; an A/A repetition is none of them."""
    named: dict[str, tuple[str, str]] = {}
    for entry in _entries(run):
        made = entry.made.get("arguments") or {}
        policy = (made.get("policy") or {}).get("policy")
        if policy and made.get("split") and not made.get("repeat"):
            named[entry.name] = str(policy), str(made["split"])
    try:
        finished = run.lineage.get("evaluations") or {}
    except DataError:
        finished = {}
    if finished:  # the record may name results of an earlier start that compared more policies
        named = {
            name: (policy, split) for name, (policy, split) in named.items() if split == VALIDATION or _step(policy) is not None
        }
    for policy, splits in finished.items():
        named |= {str(made.get("entry")): (policy, split) for split, made in splits.items()}
    found = []
    for entry in _entries(run):
        if entry.name in named and (figures := read_small(entry.path / EVALUATION_FILE)):
            found.append(_evaluation(entry.name, *named[entry.name], figures))
    return found


def held_out(evaluations: list[Evaluation], split: str = HELD_OUT) -> dict[str, Evaluation]:
    """Policy to its evaluation on a split; those of the loop on its way are left out."""
    return {one.policy: one for one in evaluations if one.split == split and _step(one.policy) is None}


def validations_of(run: FinishedRun, loop: Path, evaluations: list[Evaluation]) -> dict[int, dict[str, Estimate | None]]:
    """Iteration (0 is the start) to `greedy` and `sampled` success on validation, and `harder_greedy` where it was measured."""
    entries = read_small(loop / LOOP_FILE).get("validations") or {}
    by_entry = {one.entry: one for one in evaluations}
    found: dict[int, dict[str, Estimate | None]] = {}
    starts = {}
    for number, entry in sorted(entries.items(), key=lambda item: int(item[0])):
        one = by_entry.get(str(entry)) or _unnamed(run, str(entry))
        if one is not None:
            found[int(number)] = {"greedy": one.greedy, "sampled": one.sampled}
            starts[one.policy] = int(number)
    for one in evaluations:
        number = starts.get(one.policy)
        if one.split == HARDER and number is not None and (_step(one.policy) is not None or number == 0):
            found[number].setdefault("harder_greedy", one.greedy)
    return found


def iterations_of(run: FinishedRun, loop: Path) -> list[Iteration]:
    """The complete iterations of a loop, in order."""
    record = read_small(loop / LOOP_FILE)
    validations = record.get("validations") or {}
    found = []
    for number, made in sorted((record.get("iterations") or {}).items(), key=lambda item: int(item[0])):
        stages = {
            "rollout": made.get("rollouts") or (),
            "score": made.get("scores") or (),
            "update": [made["update"]] if made.get("update") else (),
            "evaluate": [validations[number]] if number in validations else (),
        }
        facts = {stage: [read_small(run.store / FACTS / f"{name}.json") for name in names] for stage, names in stages.items()}
        seconds = {stage: sum(fact.get("seconds") or 0.0 for fact in known) for stage, known in facts.items()}
        ends = [fact["finished"] for known in facts.values() for fact in known if fact.get("finished")]
        scores = [read_small(run.store / name / METRICS_FILE) for name in stages["score"]]
        rollouts = [read_small(run.store / name / METRICS_FILE) for name in stages["rollout"]]
        updates = [read_small(run.store / name / METRICS_FILE) for name in stages["update"]]
        found.append(
            Iteration(
                number=int(number),
                seconds={stage: spent for stage, spent in seconds.items() if spent},
                finished=max(ends, default=None),
                metrics={**_means(rollouts), **_means(scores), **_means(updates)},
                breakdown=_means([one.get("breakdown") or {} for one in scores]),
            )
        )
    return found


def read_small(path: Path) -> dict[str, Any]:
    """A small JSON file of a record or a stored result, kept until it changes; empty where it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return {}
    return _read(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=20_000)
def _read(path: Path, changed: int, size: int) -> dict[str, Any]:
    try:
        found = read_json(path)
    except DataError:
        return {}
    return found if isinstance(found, dict) else {}


def _entries(run: FinishedRun) -> list[StoredEntry]:
    try:
        return list(run.of_stage(*EVALUATIONS))
    except DataError:  # the run has not begun, or an earlier version kept no list
        return []


def _unnamed(run: FinishedRun, entry: str) -> Evaluation | None:
    figures = read_small(run.store / entry / EVALUATION_FILE)
    return _evaluation(entry, "", VALIDATION, figures) if figures else None


def _evaluation(entry: str, policy: str, split: str, figures: Mapping[str, Any]) -> Evaluation:
    return Evaluation(entry, policy, split, _rate(figures.get("greedy")), _rate(figures.get("sampled")))


def _rate(values: Mapping[str, Any] | None) -> Estimate | None:
    if not values or values.get("rate") is None or not values.get("interval"):
        return None
    low, high = values["interval"]
    return Estimate(float(values["rate"]), float(low), float(high), n=int(values.get("n") or 0))


def _step(policy: str) -> int | None:
    """The iteration of a policy of the loop, as in `rl-8`; None for others."""
    name, _, number = policy.rpartition("-")
    return int(number) if name and number.isascii() and number.isdigit() else None


def _means(files: list[dict[str, Any]]) -> dict[str, float]:
    """Means of the numbers that some files have in common."""
    names = dict.fromkeys(name for file in files for name in file)
    found = {}
    for name in names:
        known = [file[name] for file in files if isinstance(file.get(name), int | float)]
        if known:
            found[name] = float(statistics.fmean(known))
    return found
