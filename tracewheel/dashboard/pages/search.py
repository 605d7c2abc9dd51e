"""Words in the episodes of all runs."""

from __future__ import annotations

from typing import Any, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.core.types import BranchReason, Fault, StopReason
from tracewheel.curation.faults import KINDS
from tracewheel.dashboard.excerpts import with_excerpts
from tracewheel.dashboard.index import find
from tracewheel.dashboard.index.process import Indexes, Progress
from tracewheel.dashboard.index.queries import full_text_query, plain_words
from tracewheel.dashboard.library import Place
from tracewheel.dashboard.pages.common import whole
from tracewheel.dashboard.view import View

router = APIRouter()
SHOWN = 20
MARKS = ("outcome", "fault", "stop", "tool", "blame", "reason")
OUTCOMES = ("solved", "failed", "partial", "unscored", "infrastructure_failed", "not scored")
STOPS, BLAMES, REASONS = get_args(StopReason), get_args(Fault)[1:], get_args(BranchReason)[1:]


@router.get("/search")
def search(request: Request) -> Response:
    """Episodes with some words, of every work folder."""
    view: View = request.app.state.view
    indexes: Indexes = request.app.state.indexes
    asked = request.query_params
    words = asked.get("q", "")[:1000]
    marks = {name: asked.get(name, "") for name in MARKS}
    first = whole(asked.get("from"))
    progress, found = Progress(), 0
    rows: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    for place in view.library.places.values():
        if asked.get("place") and asked["place"] != place.name:
            continue
        progress += indexes.fresh(place)
        here, count, same = _in_place(
            indexes, place, words, marks, asked.get("run", ""), max(0, first - found), SHOWN - len(rows)
        )
        found += count
        rows += here
        tasks += same
    return view.page(
        request,
        "search.html",
        words=words,
        asks=bool(full_text_query(words, marks)),
        marks=marks,
        rows=rows,
        tasks=tasks,
        found=found,
        counted=find.COUNTED,
        first=first,
        page_size=SHOWN,
        progress=progress,
        places=list(view.library.places),
        outcomes=OUTCOMES,
        faults=KINDS,
        stops=STOPS,
        blames=BLAMES,
        reasons=REASONS,
        asked=dict(asked),
        part="results" if request.headers.get("hx-target") == "results" else "",
    )


def _in_place(
    indexes: Indexes, place: Place, words: str, marks: dict[str, str], run: str, first: int, shown: int
) -> tuple[list[dict[str, Any]], int, list[dict[str, Any]]]:
    """Rows of one work folder, how many match there, and the task or run of that name."""
    with indexes.reading(place) as database:
        if database is None:
            return [], 0, []
        only = frozenset({run}) & (place.only or frozenset({run})) if run else place.only
        numbers = find.numbers_of(database, only)
        if only and not numbers:
            return [], 0, []
        rows, count = find.search(database, words, marks, numbers, first, shown)
        same = find.task_named(database, words.strip(), numbers)
    rows = with_excerpts(place, rows, plain_words(words))
    return [row | {"place": place.name} for row in rows], count, [one | {"place": place.name} for one in same]
