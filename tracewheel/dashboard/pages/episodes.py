"""The episodes of a run by filters, and words in the episodes of all runs."""

from __future__ import annotations

from typing import Any, get_args

from tracewheel.core.types import BranchReason, Fault, StopReason
from tracewheel.curation.faults import KINDS
from tracewheel.dashboard.episodes import with_excerpts
from tracewheel.dashboard.index import find
from tracewheel.dashboard.index.process import Indexes, Progress
from tracewheel.dashboard.library import Place
from tracewheel.dashboard.view import Ask, Tab, page

HITS = 20
MARKS = ("outcome", "fault", "stop", "tool", "blame", "reason")
CHOICES = {
    "outcomes": ("solved", "failed", "partial", "unscored", "infrastructure_failed", "not scored"),
    "faults": KINDS,
    "stops": get_args(StopReason),
    "blames": get_args(Fault)[1:],
    "reasons": get_args(BranchReason)[1:],
}


@page("/runs/{place}/{run_id}/episodes", "episodes.html", part="table", tab=Tab("Episodes", "e", 4))
def episodes(ask: Ask) -> dict[str, Any]:
    """A page of the episodes that pass."""
    progress, order = ask.index_progress(), ask.order(find.SORTS, "iteration")
    found: dict[str, Any] = {"rows": [], "found": 0, "choices": {key: [] for key in find.CHOICES}, "pending": None}
    with ask.desk.indexes.reading(ask.desk.library.place(ask.path["place"])) as database:
        number = None if database is None else find.run_number(database, ask.path["run_id"])
        if database is not None and number is not None:
            chosen = find.Asked(ask.query, order["sort"], order["up"], order["first"], order["page_size"])
            found["rows"], found["found"] = find.episodes_of(database, number, chosen)
            found["choices"], found["pending"] = find.choices_of(database, number), find.pending_of(database, number)
    return {**order, **found, "progress": progress}


@page("/search", "search.html", part="results")
def search(ask: Ask) -> dict[str, Any]:
    """Episodes with some words, of every work folder."""
    indexes, places = ask.desk.indexes, ask.desk.library.places
    words, first = ask.query.get("q", "")[:1000], ask.whole("from")
    marks = {name: ask.query.get(name, "") for name in MARKS}
    progress, found = Progress(), 0
    rows: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    for place in places.values():
        if ask.query.get("place") in (None, "", place.name):
            progress += indexes.fresh(place)
            window = max(0, first - found), HITS - len(rows)
            here, count, same = _in_place(indexes, place, words, marks, ask.query.get("run", ""), window)
            found, rows, tasks = found + count, rows + here, tasks + same
    return {
        **CHOICES,
        "words": words,
        "asks": bool(find.full_text_query(words, marks)),
        "marks": marks,
        "rows": rows,
        "tasks": tasks,
        "found": found,
        "counted": find.COUNTED,
        "first": first,
        "page_size": HITS,
        "progress": progress,
        "places": list(places),
    }


def _in_place(
    indexes: Indexes, place: Place, words: str, marks: dict[str, str], run: str, window: tuple[int, int]
) -> tuple[list[dict[str, Any]], int, list[dict[str, Any]]]:
    """Rows of one work folder, how many match there, and the task or run of that name."""
    with indexes.reading(place) as database:
        if database is None:
            return [], 0, []
        only = frozenset({run}) & (place.only or frozenset({run})) if run else place.only
        numbers = find.numbers_of(database, only)
        if only and not numbers:
            return [], 0, []
        rows, count = find.search(database, words, marks, numbers, *window)
        same = find.task_named(database, words.strip(), numbers)
    rows = with_excerpts(place, rows, find.plain_words(words))
    return [row | {"place": place.name} for row in rows], count, [one | {"place": place.name} for one in same]
