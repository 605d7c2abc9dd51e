"""The tasks of a run by the policies that played them, and what all runs of the work folder made of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracewheel.curation.curated_folder import TRAIN
from tracewheel.dashboard.episodes import parsed
from tracewheel.dashboard.find import rate_of, task_history, train_counts
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.measured import read_small
from tracewheel.dashboard.sources import sources_of
from tracewheel.dashboard.task_matrix import SPLITS, Cell, columns_of, one_task, task_rows, tasks_of, with_trajectories
from tracewheel.dashboard.view import SHOWN, Ask, Crumb, Tab, page
from tracewheel.report.finished_run import FinishedRun
from tracewheel.sampling.lost_tasks import LOST_FILE

Sorts = Mapping[str, Callable[[Any], Any]]
SORTS: Sorts = {
    "family": lambda row: (row.family, row.tier or 0, row.task_id),
    "lost": lambda row: ({"lost": 0, "gained": 1}.get(row.change, 2), row.family, row.task_id),
    "gained": lambda row: ({"gained": 0, "lost": 1}.get(row.change, 2), row.family, row.task_id),
    "solved": lambda row: (row.solved, sum(cell.successes for cell in row.cells), row.task_id),
    "tier": lambda row: (row.tier or 0, row.family, row.task_id),
}
TRAIN_SORTS: Sorts = {
    "rate": lambda one: (one.posterior, one.task_id),
    "episodes": lambda one: (one.episodes, one.task_id),
    "family": lambda one: (one.family, one.task_id),
    "last": lambda one: (one.last or 0, one.task_id),
}


class TrainRow:
    """A training task, and what the rollouts of the run made of it."""

    change = ""

    def __init__(
        self, task_id: str, about: Mapping[str, Any], counts: Mapping[str, Any], rescued: Mapping[str, Any] | None
    ) -> None:
        self.task_id, self.family, self.tier = task_id, str(about.get("family")), about.get("tier")
        self.prompt = str(about.get("prompt") or "")
        self.rescue = "" if rescued is None else "no solution"
        if rescued and rescued.get("source"):
            self.rescue = f"from {rescued['source']}, iteration {rescued['from']}"
        blank = {"episodes": 0, "attempts": 0, "successes": 0, "first": None, "last": None, **rate_of(0, 0)}
        found = blank | dict(counts)
        self.episodes, self.attempts, self.successes = found["episodes"], found["attempts"], found["successes"]
        self.first, self.last, self.posterior, self.ends = (found[name] for name in ("first", "last", "posterior", "ends"))


@page("/runs/{place}/{run_id}/tasks", "tasks.html", part="table", tab=Tab("Tasks", "t", 2, in_file=True))
def tasks(ask: Ask) -> dict[str, Any]:
    """The matrix of a split; of the training tasks, how often the rollouts solved each."""
    split = ask.one_of("split", (*SPLITS, TRAIN), SPLITS[0])
    if split == TRAIN:
        shelf = ask.shelf(ask.path["run_id"])
        counts, known = train_counts(shelf), tasks_of(ask.run, TRAIN)
        lost = read_small(ask.run.record.path / LOST_FILE)
        names = {**counts, **known}
        every = [TrainRow(name, known.get(name) or counts[name], counts.get(name, {}), lost.get(name)) for name in names]
        shown = _listed(ask, every, TRAIN_SORTS, "rate")
        return {"split": split, "progress": shelf, "columns": [], "baseline": "", "lost": lost, **shown}
    columns = columns_of(split, sources_of(ask.run))
    rows = task_rows(ask.run, split, columns, ask.run.baseline)
    found = _listed(ask, rows, SORTS, "lost")
    changes = {change: sum(one.change == change for one in rows) for change in ("gained", "lost")}
    trajectories = with_trajectories(ask.run, found["rows"], columns)
    return {
        "split": split,
        "columns": columns,
        "baseline": ask.run.baseline,
        "counts": changes,
        **found,
        "rows": list(zip(found["rows"], trajectories, strict=True)),
    }


@page("/runs/{place}/{run_id}/tasks/{task}", "task.html")
def task(ask: Ask) -> dict[str, Any]:
    """One task: what it asks, and its history over all runs of the work folder."""
    task, shelf, first = ask.path["task"], ask.shelf(), ask.whole("from")
    history, curated = task_history(shelf, task, first, SHOWN), one_task(ask.run, task)
    if curated is None and history is None and shelf.is_whole:
        raise NotThere(
            f"neither the curation of run {ask.run.run_id} nor another run of {ask.path['place']} has a task {task!r}"
        )
    return {
        "crumbs": [Crumb("Tasks", ask.address("tasks")), Crumb(task)],
        "task": task,
        "curated": curated,
        "state": parsed((curated or {}).get("initial_state")),
        "goal": parsed((curated or {}).get("goal")),
        "history": history,
        "first": first,
        "page_size": SHOWN,
        "progress": shelf,
        "here": _here(ask.run, task),
    }


def _here(run: FinishedRun, task: str) -> list[tuple[str, str, Cell, str, str]]:
    """What this run's evaluations made of the task: policy, split, cell, stored result and trajectory."""
    found = []
    sources = sources_of(run)
    for split in SPLITS:
        columns = columns_of(split, sources)
        for one in (row for row in task_rows(run, split, columns, run.baseline) if row.task_id == task):
            played = zip(columns, one.cells, with_trajectories(run, [one], columns)[0], strict=True)
            found += [(column.label, split, cell, column.entry, name) for column, cell, name in played if name]
    return found


def _listed(ask: Ask, every: list[Any], sorts: Sorts, otherwise: str) -> dict[str, Any]:
    """A page of the tasks that pass the filters of the address, and what can be chosen."""
    order = ask.order(sorts, otherwise)
    rows = sorted((row for row in every if _passes(row, ask.query)), key=sorts[order["sort"]], reverse=order["up"])
    return {
        **order,
        "rows": rows[order["first"] : order["first"] + order["page_size"]],
        "found": len(rows),
        "every": len(every),
        "families": sorted({one.family for one in every}),
        "tiers": sorted({one.tier for one in every if one.tier is not None}),
        "splits": (*SPLITS, TRAIN),
    }


def _passes(row: Any, asked: Mapping[str, str]) -> bool:
    text, change = f"{row.task_id} {row.prompt}".casefold(), asked.get("change", "")
    return (
        asked.get("family", "") in ("", row.family)
        and asked.get("tier", "") in ("", str(row.tier))
        and (change in ("", row.change) or (change == "changed" and bool(row.change)))
        and all(word in text for word in asked.get("q", "").casefold().split())
    )
