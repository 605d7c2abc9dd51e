"""The first page: all runs, with filters and a search, what is running, and the history of the champion."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard.pages.common import one_of, whole
from tracewheel.dashboard.progress import progress_of
from tracewheel.dashboard.run_list import SORTS, Prices, champion_curve, champions, passes
from tracewheel.dashboard.run_rows import RunRows
from tracewheel.dashboard.view import View
from tracewheel.report.charts import line_chart
from tracewheel.report.doctor.finding import SEVERITIES

router = APIRouter()
SHOWN, MOST_RUNNING = 100, 12


@router.get("/")
def runs(request: Request) -> Response:
    """The runs that pass the filters, a page of them."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    every = rows.all()
    asked = dict(request.query_params)
    prices = Prices.of(asked)
    chosen = [prices.on(row) for row in every if passes(row, asked)]
    sort = one_of(asked.get("sort"), SORTS, "started")
    chosen.sort(key=SORTS[sort], reverse=asked.get("up") is None)
    first = whole(asked.get("from"))
    promoted = champions(every, asked.get("place", ""))
    running = [row for row in every if row.is_running][:MOST_RUNNING]
    return view.page(
        request,
        "run_table.html" if request.headers.get("hx-target") == "table" else "runs.html",
        rows=chosen[first : first + SHOWN],
        found=len(chosen),
        every=len(every),
        first=first,
        shown=SHOWN,
        sort=sort,
        states=sorted({row.state for row in every}),
        severities=[*SEVERITIES, "not looked"],
        places=list(view.library.places),
        asked=asked,
        champions=promoted,
        curve=champion_curve(promoted),
        line_chart=line_chart,
        running=[(row, progress_of(view.library.run(row.place, row.run_id))) for row in running],
    )
