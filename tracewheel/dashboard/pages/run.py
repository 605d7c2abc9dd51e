"""A run: its verdict and figures, and how it stands while it goes on."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard.run_rows import RunRows
from tracewheel.dashboard.view import Crumb, View

router = APIRouter()


@router.get("/runs/{place}/{run_id}")
def overview(request: Request, place: str, run_id: str) -> Response:
    """The first page of a run."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    found = view.library.run(place, run_id)
    row = rows.of(place, run_id)
    return view.page(
        request,
        "run.html",
        run=row,
        crumbs=[Crumb("Runs", "/"), Crumb(f"{row.name} {run_id}")],
        gate=found.gate,
        summary=found.summary,
    )


@router.get("/runs/{place}/{run_id}/live")
def live(request: Request, place: str, run_id: str) -> Response:
    """How a run stands, for the pages that look again every other second."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    view.library.run(place, run_id)
    return view.page(request, "live.html", run=rows.of(place, run_id))
