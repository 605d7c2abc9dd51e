"""The tasks of a run by the policies that played them, and what all runs of the work folder made of one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.curation.curated_folder import TRAIN
from tracewheel.dashboard.episodes import parsed
from tracewheel.dashboard.index import find
from tracewheel.dashboard.index.process import Indexes
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.pages.common import crumbs_of, one_of, progress_of, run_of, whole
from tracewheel.dashboard.sources import sources_of
from tracewheel.dashboard.task_matrix import (
    SPLITS,
    Cell,
    TaskRow,
    columns_of,
    one_task,
    task_rows,
    tasks_of,
    with_trajectories,
)
from tracewheel.dashboard.view import Crumb, View, address

router = APIRouter()
SHOWN = 100
SORTS: dict[str, Callable[[TaskRow], Any]] = {
    "family": lambda row: (row.family, row.tier or 0, row.task_id),
    "lost": lambda row: ({"lost": 0, "gained": 1}.get(row.change, 2), row.family, row.task_id),
    "gained": lambda row: ({"gained": 0, "lost": 1}.get(row.change, 2), row.family, row.task_id),
    "solved": lambda row: (row.solved, sum(cell.successes for cell in row.cells), row.task_id),
    "tier": lambda row: (row.tier or 0, row.family, row.task_id),
}


@router.get("/runs/{place}/{run_id}/tasks")
def tasks(request: Request, place: str, run_id: str) -> Response:
    """The matrix of a split."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    asked = request.query_params
    split = one_of(asked.get("split"), (*SPLITS, TRAIN), SPLITS[0])
    if split == TRAIN:
        return _train(request, place, run_id)
    sources = sources_of(run)
    columns = columns_of(run, split, sources)
    every = task_rows(run, split, columns, run.baseline)
    rows = [one for one in every if _passes(one, dict(asked))]
    sort = one_of(asked.get("sort"), SORTS, "lost")
    rows.sort(key=SORTS[sort], reverse=asked.get("up") is not None)
    first = whole(asked.get("from"))
    shown = rows[first : first + SHOWN]
    return view.page(
        request,
        "tasks.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Tasks")),
        split=split,
        splits=(*SPLITS, TRAIN),
        columns=columns,
        rows=list(zip(shown, with_trajectories(run, shown, columns), strict=True)),
        baseline=run.baseline,
        counts={change: sum(one.change == change for one in every) for change in ("gained", "lost")},
        every=len(every),
        found=len(rows),
        families=sorted({one.family for one in every}),
        tiers=sorted({one.tier for one in every if one.tier is not None}),
        first=first,
        page_size=SHOWN,
        sort=sort,
        sorts=list(SORTS),
        asked=dict(asked),
        part="table" if request.headers.get("hx-target") == "table" else "",
    )


@router.get("/runs/{place}/{run_id}/tasks/{task}")
def task(request: Request, place: str, run_id: str, task: str) -> Response:
    """One task: what it asks, and its history over all runs of the work folder."""
    view: View = request.app.state.view
    indexes: Indexes = request.app.state.indexes
    run, row = run_of(request, place, run_id)
    progress = progress_of(request, place, run_id)
    where = view.library.place(place)
    history, first = None, whole(request.query_params.get("from"))
    with indexes.reading(where) as database:
        if database is not None:
            history = find.task_history(database, task, find.numbers_of(database, where.only), first, SHOWN)
    curated = one_task(run, task)
    if curated is None and history is None and progress.is_whole:
        raise NotThere(f"neither the curation of run {run_id} nor another run of {place} has a task {task!r}")
    return view.page(
        request,
        "task.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Tasks", address("runs", place, run_id, "tasks")), Crumb(task)),
        task=task,
        curated=curated,
        state=parsed((curated or {}).get("initial_state")),
        goal=parsed((curated or {}).get("goal")),
        history=history,
        first=first,
        page_size=SHOWN,
        progress=progress,
        here=_here(run, task),
    )


def _here(run: FinishedRun, task: str) -> list[tuple[str, str, Cell, str, str]]:
    """What this run's evaluations made of the task: policy, split, cell, stored result and trajectory."""
    found = []
    sources = sources_of(run)
    for split in SPLITS:
        columns = columns_of(run, split, sources)
        for one in task_rows(run, split, columns, run.baseline):
            if one.task_id == task:
                ids = with_trajectories(run, [one], columns)[0]
                found += [
                    (column.label, split, cell, column.entry, trajectory)
                    for column, cell, trajectory in zip(columns, one.cells, ids, strict=True)
                    if trajectory
                ]
    return found


def _train(request: Request, place: str, run_id: str) -> Response:
    """The training tasks: how often the rollouts of the run solved each."""
    view: View = request.app.state.view
    indexes: Indexes = request.app.state.indexes
    run, row = run_of(request, place, run_id)
    progress = progress_of(request, place, run_id)
    counts: dict[str, dict[str, Any]] = {}
    with indexes.reading(view.library.place(place)) as database:
        number = None if database is None else find.run_number(database, run_id)
        if database is not None and number is not None:
            counts = find.train_counts(database, number)
    known = tasks_of(run, TRAIN)
    blank = {"episodes": 0, **find.rate_of(0, 0), "attempts": 0, "successes": 0, "first": None, "last": None}
    every = [
        {**blank, **counts.get(task_id, {}), **{key: about.get(key) for key in ("family", "tier", "prompt")}, "task": task_id}
        for task_id, about in ({task_id: dict(count) for task_id, count in counts.items()} | known).items()
    ]
    asked = request.query_params
    rows = [one for one in every if _passes_train(one, dict(asked))]
    keys: dict[str, Callable[[dict[str, Any]], Any]] = {
        "rate": lambda one: (one["posterior"], one["task"]),
        "episodes": lambda one: (one["episodes"], one["task"]),
        "family": lambda one: (str(one["family"]), one["task"]),
        "last": lambda one: (one["last"] or 0, one["task"]),
    }
    sort = one_of(asked.get("sort"), keys, "rate")
    rows.sort(key=keys[sort], reverse=asked.get("up") is not None)
    first = whole(asked.get("from"))
    return view.page(
        request,
        "tasks_train.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Tasks")),
        split=TRAIN,
        splits=(*SPLITS, TRAIN),
        rows=rows[first : first + SHOWN],
        every=len(every),
        found=len(rows),
        families=sorted({str(one["family"]) for one in every}),
        tiers=sorted({one["tier"] for one in every if one["tier"] is not None}),
        first=first,
        page_size=SHOWN,
        sort=sort,
        sorts=list(keys),
        asked=dict(asked),
        progress=progress,
        part="table" if request.headers.get("hx-target") == "table" else "",
    )


def _passes(row: TaskRow, asked: dict[str, str]) -> bool:
    words = asked.get("q", "").casefold().split()
    text = f"{row.task_id} {row.prompt}".casefold()
    change = asked.get("change", "")
    return (
        (not asked.get("family") or row.family == asked["family"])
        and (not asked.get("tier") or str(row.tier) == asked["tier"])
        and (not change or row.change == change or (change == "changed" and bool(row.change)))
        and all(word in text for word in words)
    )


def _passes_train(row: dict[str, Any], asked: dict[str, str]) -> bool:
    text = f"{row['task']} {row['prompt'] or ''}".casefold()
    return (
        (not asked.get("family") or str(row["family"]) == asked["family"])
        and (not asked.get("tier") or str(row["tier"]) == asked["tier"])
        and all(word in text for word in asked.get("q", "").casefold().split())
    )
