"""Lineage: what a run's adapter was made from, and what of the runs and stores comes from a user, a session or a trace."""

from __future__ import annotations

from typing import Any

from tracewheel.comparison.finished_run import RL
from tracewheel.core.errors import DataError
from tracewheel.dashboard.lineage import KINDS, everything_of, roads_of, runs_taught, steps_of, teachers_of, traces_of
from tracewheel.dashboard.view import Ask, Crumb, Tab, address, page

TEACHERS = 50
LONGEST_NAME = 500


@page("/runs/{place}/{run_id}/lineage", "lineage.html", part="teachers", tab=Tab("Lineage", "l", 7, in_file=True))
def backward(ask: Ask) -> dict[str, Any]:
    """What the adapter of a run was made from, back to the log lines."""
    run, first = ask.run, ask.whole("from")
    words, road = ask.query.get("q", "").strip()[:LONGEST_NAME], ask.query.get("road", "")
    teachers, found = teachers_of(run, words, road, first, TEACHERS)
    lineage: dict[str, Any] = run.lineage
    return {
        "adapter": (lineage.get("policies") or {}).get(RL) or {},
        **{name: lineage.get(key) or {} for name, key in (("chosen", "chosen"), ("base", "base"), ("code", "git"))},
        "parent_known": _is_run(ask, ask.path["place"], ask.row.parent),
        "logs": (run.record.snapshot or {}).get("files") or [],
        "steps": steps_of(run),
        "roads": roads_of(run),
        "teachers": teachers,
        "found": found,
        "first": first,
        "shown": TEACHERS,
    }


@page("/lineage", "whose_data.html")
def forward(ask: Ask) -> dict[str, Any]:
    """What comes from a user, a session or a trace, in all work folders that are shown."""
    (kind, value), places = _asked(ask), ask.desk.library.places
    taught = runs_taught(ask.desk.library, kind, value) if value else []
    taught = [one | {"row": ask.desk.rows.of(one["place"], one["run_id"])} for one in taught]
    return {
        "crumbs": [Crumb("Whose data")],
        "kind": kind,
        "value": value,
        "kinds": list(KINDS),
        "stored": [(place, found) for place in places.values() if value and (found := traces_of(place, kind, value))],
        "taught": sorted(taught, key=lambda one: str(one["row"].started), reverse=True),
        "places": list(places),
    }


@page("/lineage/everything", "everything.html")
def everything(ask: Ask) -> dict[str, Any]:
    """What `tracewheel forget` would touch in a work folder: every entry and run, which takes seconds to find."""
    (kind, value), place = _asked(ask), ask.query.get("place", "")
    where = ask.desk.library.place(place)
    problem, found, shown = "", None, {}
    try:
        found = everything_of(where, kind, value)
        shown = {run: _is_run(ask, place, run) for run in found.runs}
    except DataError as flaw:
        problem = str(flaw)
    return {
        "crumbs": [Crumb("Whose data", address("lineage", **{kind: value})), Crumb("All that holds it")],
        "kind": kind,
        "value": value,
        "place": place,
        "part": "found" if ask.target else "",
        "found": found,
        "shown_runs": shown,
        "problem": problem,
    }


def _asked(ask: Ask) -> tuple[str, str]:
    """What is asked for, and which: the first of user, session and trace that is given."""
    given = ((kind, ask.query.get(kind, "").strip()[:LONGEST_NAME]) for kind in KINDS)
    return next(((kind, value) for kind, value in given if value), ("user", ""))


def _is_run(ask: Ask, place: str, run_id: str) -> bool:
    try:
        return bool(run_id) and bool(ask.desk.library.run(place, run_id))
    except DataError:
        return False
