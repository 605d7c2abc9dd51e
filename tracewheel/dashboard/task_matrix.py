"""The tasks of a split by the policies that played them: solved, failed, unscored, not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_batches, read_columns
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, TASKS_FILE, VALIDATION
from tracewheel.dashboard.duck import select
from tracewheel.dashboard.sources import Source
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.report.finished_run import RL, FinishedRun

SPLITS = (HELD_OUT, HARDER, VALIDATION)
SOLVED, FAILED, UNSCORED, NOT_RUN = "solved", "failed", "unscored", "not run"
GAINED, LOST = "gained", "lost"
RESULTS = ("task_id", "family", "greedy", "sampled_successes", "sampled_attempts")


@dataclass(frozen=True)
class Column:
    """A policy's evaluation on the split."""

    key: str
    label: str
    entry: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """How a policy did on a task: greedy, and how many of the sampled episodes succeeded."""

    greedy: str = NOT_RUN
    successes: float = 0.0
    attempts: int = 0
    trajectory: str = ""


@dataclass(frozen=True)
class TaskRow:
    """A task; `change` is from the baseline to the policy after RL: gained, lost or ""."""

    task_id: str
    family: str
    tier: int | None
    split: str
    prompt: str
    cells: tuple[Cell, ...]
    change: str = ""

    @property
    def solved(self) -> int:
        """How many policies solve it."""
        return sum(cell.greedy == SOLVED for cell in self.cells)


def columns_of(split: str, sources: Sequence[Source]) -> list[Column]:
    """The evaluations of a split: by policy where the record names them, else, as in a run that goes on, by their label."""
    found: dict[str, Column] = {}
    for source in sources:
        if source.kind != "evaluation" or (source.split or _split_in(source.label)) != split:
            continue
        key = source.policy or source.label.removesuffix(f", {source.part}").removeprefix("evaluate ").removesuffix(f" {split}")
        known = found.get(source.entry)
        parts = (*(known.parts if known else ()), source.part)
        found[source.entry] = Column(key, key.replace("_", " "), source.entry, parts)
    return _named(found.values())


def task_rows(run: FinishedRun, split: str, columns: Sequence[Column], baseline: str) -> list[TaskRow]:
    """A row for each task of a split, by family and task.

    Args:
        run: The run.
        split: One of `SPLITS`.
        columns: The policies.
        baseline: The key of the policy that the one after RL is compared with; "" where there is none.
    """
    tables = [_results(run.store / column.entry / RESULTS_FILE) for column in columns]
    known = tasks_of(run, split)
    keys = [column.key for column in columns]
    before, after = (keys.index(key) if key in keys else None for key in (baseline, RL))
    rows = []
    for task_id in sorted({*known, *(task for table in tables for task in table)}):
        cells = tuple(_cell(table.get(task_id)) for table in tables)
        about = known.get(task_id, {})
        family = about.get("family") or next((table[task_id]["family"] for table in tables if task_id in table), "")
        change = ""
        if before is not None and after is not None:
            pair = cells[before].greedy, cells[after].greedy
            change = {(FAILED, SOLVED): GAINED, (SOLVED, FAILED): LOST}.get(pair, "")
        rows.append(TaskRow(task_id, str(family), about.get("tier"), split, str(about.get("prompt") or ""), cells, change))
    return sorted(rows, key=lambda row: (row.family, row.task_id))


def tasks_of(run: FinishedRun, split: str = "") -> dict[str, dict[str, Any]]:
    """Family, tier, split and prompt of the curated tasks; empty where the store has lost them."""
    try:
        file = run.curated / TASKS_FILE
    except DataError:
        return {}
    found = {}
    for batch in read_batches(file, 2000, ["id", "family", "tier", "split", "prompt"]):
        for row in batch.to_pylist():
            if not split or row["split"] == split:
                found[row["id"]] = row
    return found


def one_task(run: FinishedRun, task_id: str) -> dict[str, Any] | None:
    """All columns of a curated task; None where it is not there."""
    try:
        file = run.curated / TASKS_FILE
    except DataError:
        return None
    return next(iter(select("SELECT * FROM read_parquet([?]) WHERE id = ?", [str(file), task_id], file)), None)


def with_trajectories(run: FinishedRun, rows: Sequence[TaskRow], columns: Sequence[Column]) -> list[list[str]]:
    """The id of the greedy (else the first sampled) trajectory of each shown cell; "" where there is none."""
    wanted = [row.task_id for row in rows]
    found: list[Mapping[str, str]] = []
    for column in columns:
        part = "greedy" if "greedy" in column.parts else next(iter(column.parts), "greedy")
        found.append(_trajectories(run.store / column.entry / part / "scores.parquet", wanted))
    return [[table.get(task, "") for table in found] for task in wanted]


def _trajectories(file: Path, tasks: Sequence[str]) -> dict[str, str]:
    wanted = set(tasks)
    found: dict[str, str] = {}
    if file.is_file():
        for batch in read_batches(file, 5000, ["task_id", "trajectory_id"]):
            for task, trajectory in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if task in wanted:
                    found.setdefault(task, trajectory)
    return found


def _results(file: Path) -> dict[str, dict[str, Any]]:
    if not file.is_file():
        return {}
    there = set(read_columns(file))
    names = [name for name in RESULTS if name in there]
    return {row["task_id"]: row for batch in read_batches(file, 5000, names) for row in batch.to_pylist()}


def _cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return Cell()
    greedy = row.get("greedy")
    attempts = int(row.get("sampled_attempts") or 0)
    word = UNSCORED if greedy is None or greedy != greedy else SOLVED if greedy >= 1.0 else FAILED
    return Cell(word, float(row.get("sampled_successes") or 0.0), attempts)


def _split_in(label: str) -> str:
    """The split that the label of an evaluation names, as in "evaluate rl held_out"."""
    words = label.replace(",", " ").split()
    return next((split for split in SPLITS if split in words), "")


def _named(columns: Any) -> list[Column]:
    """Columns in the order they were made; a policy that was evaluated again has its own column."""
    found: dict[str, Column] = {}
    for column in columns:
        times = sum(key == column.key or key.startswith(f"{column.key}, again") for key in found)
        key = column.key if not times else f"{column.key}, again" + (f" {times}" if times > 1 else "")
        found[key] = Column(key, key.replace("_", " "), column.entry, column.parts)
    return list(found.values())
