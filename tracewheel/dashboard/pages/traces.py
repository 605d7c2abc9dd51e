"""Traces and curation: what came in, what was left out and why, and what the tasks are like."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard.column_chart import column_chart
from tracewheel.dashboard.intake import intake_of
from tracewheel.dashboard.pages.common import crumbs_of, run_of
from tracewheel.dashboard.view import Crumb, View
from tracewheel.report.quality_page import histogram_chart

router = APIRouter()


@router.get("/runs/{place}/{run_id}/traces")
def traces(request: Request, place: str, run_id: str) -> Response:
    """The traces of a run and their curation."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    found = intake_of(run)
    rates = found.difficulty.get("rates")
    return view.page(
        request,
        "traces.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Traces")),
        intake=found,
        days=column_chart(found.days, "traces") if found.days else None,
        passed=histogram_chart(rates, "pass rate of the logged agent, percent") if rates else None,
        split_names=("train", "validation", "held_out", "harder"),
    )
