"""What pages of a run have in common: reading the query of a request, and the head of a page."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.index.process import Indexes, Progress
from tracewheel.dashboard.run_rows import RunRow, RunRows
from tracewheel.dashboard.view import Crumb, View, address


def run_of(request: Request, place: str, run_id: str) -> tuple[FinishedRun, RunRow]:
    """A run and its row.

    Raises:
        NotThere: there is none.
    """
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    return view.library.run(place, run_id), rows.of(place, run_id)


def crumbs_of(row: RunRow, *more: Crumb) -> list[Crumb]:
    """The way to a page of a run."""
    return [Crumb("Runs", "/"), Crumb(f"{row.name} {row.run_id}", address("runs", row.place, row.run_id)), *more]


def progress_of(request: Request, place: str, run_id: str = "") -> Progress:
    """How far the index of a work folder is; building goes on where it is not whole."""
    indexes: Indexes = request.app.state.indexes
    return indexes.fresh(indexes.library.place(place), run_id)


def whole(text: str | None, otherwise: int = 0) -> int:
    """A whole number of a request, or what stands for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def one_of(text: str | None, known: Any, otherwise: str) -> str:
    """A word of a request that is one of the known ones."""
    return text if text is not None and text in known else otherwise
