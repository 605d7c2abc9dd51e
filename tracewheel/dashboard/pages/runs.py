"""The first page: all runs, with filters and a search, and the history of the champion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.core.run_state import AWAITING, REFUSED
from tracewheel.dashboard.run_rows import RunRow, RunRows
from tracewheel.dashboard.view import View
from tracewheel.report.doctor.finding import SEVERITIES

router = APIRouter()
SHOWN = 100
SORTS: dict[str, Callable[[RunRow], Any]] = {
    "started": lambda row: row.started,
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "after": lambda row: _least(row.after),
    "gain": lambda row: _least(row.gain),
    "seconds": lambda row: _least(row.seconds),
    "tokens": lambda row: _least(row.tokens),
    "point": lambda row: _least(row.per_point.get("seconds")),
    "doctor": lambda row: -SEVERITIES.index(row.worst) if row.worst in SEVERITIES else -9,
}


@router.get("/")
def runs(request: Request) -> Response:
    """The runs that pass the filters, a page of them."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    every = rows.all()
    asked = request.query_params
    chosen = [row for row in every if _passes(row, asked.get("q", ""), asked.get("state", ""), asked.get("place", ""))]
    sort = asked.get("sort", "started")
    chosen.sort(key=SORTS.get(sort, SORTS["started"]), reverse=asked.get("up") is None)
    first = max(0, whole(asked.get("from"), 0))
    return view.page(
        request,
        "runs.html",
        rows=chosen[first : first + SHOWN],
        found=len(chosen),
        every=len(every),
        first=first,
        shown=SHOWN,
        sort=sort if sort in SORTS else "started",
        states=sorted({row.state for row in every}),
        places=list(view.library.places),
        asked=dict(asked),
        champions=champions(every),
        running=[row for row in every if row.is_running],
        part="table" if request.headers.get("hx-target") == "table" else "",
    )


def champions(rows: Iterable[RunRow]) -> list[RunRow]:
    """The promoted runs in the order of their start."""
    return sorted(
        (row for row in rows if row.verdict == "promoted" and row.state not in (AWAITING, REFUSED)), key=lambda row: row.started
    )


def _passes(row: RunRow, words: str, state: str, place: str) -> bool:
    text = f"{row.run_id} {row.name} {row.state} {row.message} {row.started} {row.version}".casefold()
    return (
        (not state or row.state == state)
        and (not place or row.place == place)
        and all(w in text for w in words.casefold().split())
    )


def _least(value: float | None) -> float:
    return float("-inf") if value is None else value


def whole(text: str | None, otherwise: int) -> int:
    """A small whole number of a request."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else otherwise
