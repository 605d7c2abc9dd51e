"""The stages of a run beside those of the same run made again: equal, within what rounding allows, or apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tracewheel import DataError, FinishedRun, JsonPath, read_json, setting_differences
from tracewheel_lab.reproduce.contents import FileDifference, compare_folders

RATE = 0.05


@dataclass(frozen=True)
class Tolerance:
    """How far a stage's outputs may be apart.

    Attributes:
        says: The tolerance in words.
        files: Patterns of files, and how far their numbers may be apart. Everything else in them must be equal.
        fields: Fields of JSON files by file, and how far they may be apart; 0 for equal.
    """

    says: str
    files: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def holds(self, one: Path, two: Path, found: list[FileDifference]) -> bool:
        """Whether two outputs are within it, given the files that differ."""
        for difference in found:
            for pattern, limit in self.files.items():
                if fnmatchcase(difference.file, pattern) and not _is_near(difference, limit):
                    return False
        for name, limits in self.fields.items():
            try:
                first, second = (read_json(folder / name) for folder in (one, two))
            except DataError:
                return False
            for path, limit in limits.items():
                field = JsonPath(path)
                if not _agree(field.get(first), field.get(second), limit):
                    return False
        return True


def _is_near(difference: FileDifference, limit: float) -> bool:
    return difference.same_values or (difference.largest is not None and difference.largest <= limit)


def _agree(one: Any, two: Any, limit: float) -> bool:
    if limit and isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= limit
    return bool(one == two)


ALL_VALUES = Tolerance("all values are equal; files may be written otherwise", {"*": 0.0})
WEIGHTS = Tolerance("each weight within 0.001", {"*.safetensors": 1e-3})
RATES = {"greedy.rate": RATE, "sampled.rate": RATE}
TOLERANCES = {
    "ingest": ALL_VALUES,
    "curate": ALL_VALUES,
    "warm_start": WEIGHTS,
    "champion": ALL_VALUES,
    "rollout": Tolerance(
        "the same tokens, log-probabilities within 0.001",
        {"trajectories.parquet": 1e-3, "greedy.parquet": 1e-3, "variants.parquet": 1e-3},
    ),
    "collect": Tolerance("the same tokens, log-probabilities within 0.001", {"trajectories.parquet": 1e-3}),
    "score": Tolerance("totals within 0.001", {"scores.parquet": 1e-3}),
    "rate_trials": Tolerance("the same learning rate", fields={"trials.json": {"learning_rate": 0.0}}),
    "teach": ALL_VALUES,
    "solutions": ALL_VALUES,
    "update": WEIGHTS,
    "go_back": WEIGHTS,
    "evaluate": Tolerance("greedy and sampled success within 0.05", fields={"evaluation.json": RATES}),
    "audit": Tolerance("the same verdict", fields={"audit.json": {"verdict": 0.0}}),
    "gate": Tolerance(
        "the same verdict against the same baseline, the difference within 0.05",
        fields={"gate.json": {"verdict": 0.0, "baseline": 0.0, "difference": RATE}},
    ),
}


def tolerance_of(stage: str) -> Tolerance:
    """The tolerance of a stage; equal values for one that is not listed."""
    return TOLERANCES.get(stage, ALL_VALUES)


EQUAL, SAME_VALUES, WITHIN, PARTS = "equal", "same values", "within tolerance", "parts"
NOT_COMPARED, NOT_MADE = "not compared", "not made"
MADE = ("code", "settings", "packages", "arguments")


@dataclass(frozen=True)
class StageResult:
    """One stage of both runs.

    Attributes:
        label: The stage and its place among its like, as in "update 3", or its label where the record has it.
        before: Digest of the output; `after` that of the run made again; "" where it is not known.
        state: One of the constants above.
        same_key: Whether both were made from the same things by the same code; None where it was not made again.
        files: What differs in the output.
        made: What of the key differs, where both say it: `code`, `settings`, `packages`, `arguments`.
        seconds: How long it took, before and after.
    """

    stage: str
    label: str
    before: str
    after: str
    state: str
    same_key: bool | None = None
    files: Sequence[FileDifference] = ()
    made: Sequence[dict[str, Any]] = ()
    tolerance: str = ""
    seconds: Sequence[float | None] = field(default=(None, None))

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def compare_stages(before: FinishedRun, after: FinishedRun, last: int | None = None) -> list[StageResult]:
    """Compare the outputs of two runs, each stage with the one at the same place among its like.

    Args:
        before: The finished run.
        after: The run that was made again.
        last: Number of stages to compare; None for all.
    """
    made_again = dict(_placed(after.entries))
    results = []
    for place, entry in list(_placed(before.entries))[:last]:
        results.append(_compare(place, entry, made_again.pop(place, None)))
    if last is None:
        for (stage, number), entry in made_again.items():
            results.append(StageResult(stage, _label(stage, number, entry), "", entry.digest, PARTS, None))
    return results


def _placed(entries: Sequence[Any]) -> Iterator[tuple[tuple[str, int], Any]]:
    """Each entry with its stage and its number among those of the stage, from 1."""
    seen: Counter[str] = Counter()
    for entry in entries:
        seen[entry.stage] += 1
        yield (entry.stage, seen[entry.stage]), entry


def _compare(place: tuple[str, int], before: Any, after: Any) -> StageResult:
    stage, label = before.stage, _label(*place, before)
    if after is None or not after.is_stored:
        return StageResult(stage, label, before.digest, "", NOT_MADE)
    seconds = (before.metadata.get("seconds"), after.metadata.get("seconds"))
    shared: dict[str, Any] = {"same_key": before.name == after.name, "made": _made(before, after), "seconds": seconds}
    if before.digest == after.digest:
        return StageResult(stage, label, before.digest, after.digest, EQUAL, **shared)
    if not before.is_stored:
        state = PARTS if before.digest else NOT_COMPARED
        return StageResult(stage, label, before.digest, after.digest, state, **shared)
    tolerance = tolerance_of(stage)
    files = compare_folders(before.path, after.path)
    if all(difference.same_values for difference in files):
        state = SAME_VALUES
    else:
        state = WITHIN if tolerance.holds(before.path, after.path, files) else PARTS
    return StageResult(stage, label, before.digest, after.digest, state, files=files, tolerance=tolerance.says, **shared)


def _made(before: Any, after: Any) -> list[dict[str, Any]]:
    """What two entries say that they were made from, where it differs; empty where one says nothing."""
    if not before.made or not after.made:
        return []
    return setting_differences([{name: entry.made.get(name) for name in MADE} for entry in (before, after)])


def _label(stage: str, number: int, entry: Any) -> str:
    return str(entry.made.get("label") or f"{stage} {number}")
