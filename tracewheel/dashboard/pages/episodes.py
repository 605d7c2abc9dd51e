"""The episodes of a run by filters, and words in the episodes of all runs."""

from __future__ import annotations

from typing import Any, get_args

from tracewheel.core.types import BranchReason, Fault, StopReason
from tracewheel.curation.faults import KINDS
from tracewheel.dashboard.digests import Shelf
from tracewheel.dashboard.episodes import with_excerpts
from tracewheel.dashboard.find import SORTS, Asked, choices_of, count_of, episodes_of, task_named, terms_of
from tracewheel.dashboard.view import Ask, Tab, page

HITS = 20
MARKS = ("outcome", "fault", "stop", "tool", "blame", "reason")
KNOWN = {
    "outcomes": ("solved", "failed", "partial", "unscored", "infrastructure_failed", "not scored"),
    "faults": KINDS,
    "stops": get_args(StopReason),
    "blames": get_args(Fault)[1:],
    "reasons": get_args(BranchReason)[1:],
}


@page("/runs/{place}/{run_id}/episodes", "episodes.html", part="table", tab=Tab("Episodes", "e", 4))
def episodes(ask: Ask) -> dict[str, Any]:
    """A page of the episodes that pass."""
    shelf, order = ask.shelf(ask.path["run_id"]), ask.order(SORTS, "iteration")
    asked = Asked(ask.query, sort=order["sort"], up=order["up"], first=order["first"], shown=order["page_size"])
    rows, found = episodes_of(shelf, asked)
    return {**order, "rows": rows, "found": found, "choices": choices_of(shelf), "progress": shelf}


@page("/search", "search.html", part="results")
def search(ask: Ask) -> dict[str, Any]:
    """Episodes with some words, of every work folder."""
    places, words, first = ask.desk.library.places, ask.query.get("q", "")[:1000], ask.whole("from")
    marks, terms = {name: ask.query.get(name, "") for name in MARKS}, terms_of(words)
    asks = any(one.is_wanted for one in terms) or any(marks.values())
    shelves: list[Shelf] = []
    rows: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    found = 0
    for place in places.values():
        if ask.query.get("place") not in (None, "", place.name):
            continue
        shelf = ask.desk.digests.of(place, [run] if (run := ask.query.get("run")) else ())
        shelves.append(shelf)
        if not asks:
            found += count_of(shelf)
            continue
        asked = Asked(marks, terms, first=max(0, first - found), shown=HITS - len(rows))
        here, count = episodes_of(shelf, asked)
        here = with_excerpts(place, here, [one.text for one in terms if one.is_wanted])
        rows += [row | {"place": place.name} for row in here]
        tasks += [one | {"place": place.name} for one in task_named(shelf, words.strip())]
        found += count
    return {
        **KNOWN,
        "words": words,
        "asks": asks,
        "marks": marks,
        "rows": rows,
        "tasks": tasks,
        "found": found,
        "first": first,
        "page_size": HITS,
        "progress": {
            "read": sum(one.read for one in shelves),
            "results": sum(one.results for one in shelves),
            "damaged": sum(one.damaged for one in shelves),
            "is_whole": all(one.is_whole for one in shelves),
        },
        "places": list(places),
    }
