"""Lineage: what a run's adapter was made from, and what of the runs and stores comes from a user, a session or a trace."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.finished_run import RL
from tracewheel.core.errors import DataError
from tracewheel.dashboard.lineage import KINDS, everything_of, roads_of, runs_taught, steps_of, teachers_of, traces_of
from tracewheel.dashboard.pages.common import crumbs_of, run_of, whole
from tracewheel.dashboard.run_rows import RunRows
from tracewheel.dashboard.view import Crumb, View, address

router = APIRouter()
SHOWN = 50
LONGEST_NAME = 500


@router.get("/runs/{place}/{run_id}/lineage")
def backward(request: Request, place: str, run_id: str) -> Response:
    """What the adapter of a run was made from, back to the log lines."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    asked = request.query_params
    first = whole(asked.get("from"))
    teachers, found = teachers_of(run, asked.get("q", "").strip()[:LONGEST_NAME], asked.get("road", ""), first, SHOWN)
    lineage: dict[str, Any] = run.lineage
    snapshot = run.record.snapshot or {}
    return view.page(
        request,
        "lineage.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Lineage")),
        adapter=(lineage.get("policies") or {}).get(RL) or {},
        chosen=lineage.get("chosen") or {},
        base=lineage.get("base") or {},
        code=lineage.get("git") or {},
        parent=lineage.get("parent") or {},
        parent_known=_is_run(view, place, row.parent),
        logs=snapshot.get("files") or [],
        steps=steps_of(run),
        roads=roads_of(run),
        teachers=teachers,
        found=found,
        first=first,
        shown=SHOWN,
        asked=dict(asked),
        part="teachers" if request.headers.get("hx-target") == "teachers" else "",
    )


@router.get("/lineage")
def forward(request: Request) -> Response:
    """What comes from a user, a session or a trace, in all work folders that are shown."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    kind, value = _asked(request)
    stored, taught = [], []
    if value:
        stored = [(place, found) for place in view.library.places.values() if (found := traces_of(place, kind, value))]
        taught = runs_taught(view.library, kind, value)
        for one in taught:
            one["row"] = rows.of(one["place"], one["run_id"])
        taught.sort(key=lambda one: one["row"].started, reverse=True)
    return view.page(
        request,
        "whose_data.html",
        crumbs=[Crumb("Runs", "/"), Crumb("Whose data")],
        kind=kind,
        value=value,
        kinds=list(KINDS),
        stored=stored,
        taught=taught,
        places=list(view.library.places),
    )


@router.get("/lineage/everything")
def everything(request: Request, place: str = "") -> Response:
    """What `tracewheel forget` would touch in a work folder: every entry and run, which takes seconds to find."""
    view: View = request.app.state.view
    kind, value = _asked(request)
    where = view.library.place(place)
    problem, found, shown = "", None, {}
    try:
        found = everything_of(where, kind, value)
        shown = {run: _is_run(view, place, run) for run in found.runs}
    except DataError as flaw:
        problem = str(flaw)
    return view.page(
        request,
        "everything.html",
        crumbs=[Crumb("Runs", "/"), Crumb("Whose data", address("lineage", **{kind: value})), Crumb("All that holds it")],
        kind=kind,
        value=value,
        place=place,
        found=found,
        shown_runs=shown,
        problem=problem,
        part="found" if request.headers.get("hx-request") else "",
    )


def _asked(request: Request) -> tuple[str, str]:
    """What is asked for, and which: the first of user, session and trace that is given."""
    for kind in KINDS:
        if value := request.query_params.get(kind, "").strip()[:LONGEST_NAME]:
            return kind, value
    return "user", ""


def _is_run(view: View, place: str, run_id: str) -> bool:
    try:
        return bool(run_id) and bool(view.library.run(place, run_id))
    except DataError:
        return False
