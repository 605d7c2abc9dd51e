"""The episodes of a run, by filters."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard.index import find
from tracewheel.dashboard.index.process import Indexes
from tracewheel.dashboard.pages.common import crumbs_of, one_of, progress_of, run_of, whole
from tracewheel.dashboard.view import Crumb, View

router = APIRouter()
SHOWN = 100


@router.get("/runs/{place}/{run_id}/episodes")
def episodes(request: Request, place: str, run_id: str) -> Response:
    """A page of the episodes that pass."""
    view: View = request.app.state.view
    indexes: Indexes = request.app.state.indexes
    _, row = run_of(request, place, run_id)
    progress = progress_of(request, place, run_id)
    asked = request.query_params
    first, sort = whole(asked.get("from")), one_of(asked.get("sort"), find.SORTS, "iteration")
    rows: list[dict[str, Any]] = []
    choices: dict[str, list[tuple[str, int]]] = {key: [] for key in find.CHOICES}
    found, pending = 0, None
    with indexes.reading(view.library.place(place)) as database:
        number = None if database is None else find.run_number(database, run_id)
        if database is not None and number is not None:
            chosen = find.Asked(dict(asked), sort, asked.get("up") is not None, first, SHOWN)
            rows, found = find.episodes_of(database, number, chosen)
            choices = find.choices_of(database, number)
            pending = find.pending_of(database, number)
    return view.page(
        request,
        "episodes.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Episodes")),
        rows=rows,
        found=found,
        choices=choices,
        pending=pending,
        progress=progress,
        first=first,
        page_size=SHOWN,
        sort=sort,
        sorts=list(find.SORTS),
        asked=dict(asked),
        part="table" if request.headers.get("hx-target") == "table" else "",
    )
