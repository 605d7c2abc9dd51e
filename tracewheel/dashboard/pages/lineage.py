"""Lineage: what a run's adapter was made from, and what of the runs and stores comes from a user, a session or a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.dashboard.duck import columns_of, select
from tracewheel.dashboard.library import Library, Place
from tracewheel.dashboard.view import Ask, Crumb, Tab, address, page
from tracewheel.lineage.backward import LEARNED_FILE
from tracewheel.report.finished_run import RL, FinishedRun
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    from tracewheel.lineage.forward import Affected

# What is asked for to the column that holds it, in `learned.parquet` and in the stored traces.
KINDS = {"user": ("user", "user"), "session": ("session", "session"), "trace": ("trace_id", "id")}
# The order in which the stages of a run stand, and what one of each makes.
STAGES = {
    "ingest": "traces",
    "curate": "tasks",
    "champion": "champion's weights",
    "warm_start": "warm start",
    "rollout": "rollouts",
    "collect": "rollouts",
    "score": "scores",
    "teach": "teacher's solutions",
    "solutions": "solutions of lost tasks",
    "update": "updates",
    "go_back": "steps back",
    "merge": "merge",
    "evaluate": "evaluations",
    "join": "joined evaluations",
    "gate": "verdict",
}
MOST_TRACES = 200


@dataclass(frozen=True)
class Step:
    """A stage of a run on the way to its adapter: how many results it made, and one of them."""

    stage: str
    makes: str
    count: int
    entry: str
    stored: int


def steps_of(run: FinishedRun) -> list[Step]:
    """The stages that a run went through, in the order of the road; none where it has asked for nothing yet."""
    by_stage: dict[str, list[Any]] = {}
    try:
        for entry in run.entries:
            by_stage.setdefault(entry.stage, []).append(entry)
    except DataError:
        return []
    return [
        Step(stage, makes, len(found), found[-1].name, sum(one.path.is_dir() for one in found))
        for stage, makes in STAGES.items()
        if (found := by_stage.get(stage))
    ]


def roads_of(run: FinishedRun) -> list[dict[str, Any]]:
    """By which road how many traces, tasks, users and sessions taught the run's adapter; empty where nothing is noted."""
    return _learned(
        run,
        "SELECT road, count(DISTINCT trace_id) traces, count(DISTINCT task_id) tasks, count(DISTINCT {user}) users, "
        'count(DISTINCT {session}) sessions FROM learned GROUP BY 1 ORDER BY traces DESC, "road"',
        [],
    )


def teachers_of(run: FinishedRun, words: str, road: str, first: int, most: int) -> tuple[list[dict[str, Any]], int]:
    """The traces that taught a run's adapter, a page of them, and how many there are.

    Args:
        run: The run.
        words: In the trace's id, its user, session, task or log file; "" for all.
        road: Only by this road; "" for all.
        first: Traces to pass over.
        most: Traces to return.
    """
    where = (
        "(? = '' OR contains(lower(concat_ws(' ', trace_id, task_id, {user}, {session}, {file})), lower(?))) "
        "AND (? = '' OR road = ?)"
    )
    grouped = f"""
        SELECT trace_id, any_value({{user}}) "user", any_value({{session}}) session, any_value({{file}}) file,
            any_value({{line}}) line, string_agg(DISTINCT road, ', ' ORDER BY road) roads,
            string_agg(DISTINCT task_id, ' ' ORDER BY task_id) tasks, count(DISTINCT entry) results
        FROM learned WHERE {where} GROUP BY trace_id"""
    values = [words, words, road, road]
    rows = _learned(run, f"{grouped} ORDER BY results DESC, trace_id LIMIT {int(most)} OFFSET {int(first)}", values)
    found = _learned(run, f"SELECT count(*) found FROM ({grouped})", values)
    return rows, int(found[0]["found"]) if found else 0


def runs_taught(library: Library, kind: str, value: str) -> list[dict[str, Any]]:
    """The runs whose adapter learned from somebody's traces: `place`, `run_id`, `traces`, `tasks`, `roads`."""
    files = {
        str(path): (place.name, run_id)
        for place, run_id in library.runs()
        if (path := place.path / run_id / LEARNED_FILE).is_file()
    }
    column = KINDS[kind][0]
    if not files or column not in columns_of(list(files)):  # earlier versions noted neither users nor sessions
        return []
    query = f"""SELECT filename, count(DISTINCT trace_id) traces, count(DISTINCT task_id) tasks,
            string_agg(DISTINCT road, ', ' ORDER BY road) roads
        FROM read_parquet(?, filename=true, union_by_name=true) WHERE "{column}" = ? GROUP BY 1"""
    rows = select(query, [list(files), value], LEARNED_FILE)
    return [{"place": files[row["filename"]][0], "run_id": files[row["filename"]][1], **row} for row in rows]


def traces_of(place: Place, kind: str, value: str) -> list[dict[str, Any]]:
    """Somebody's stored traces in a work folder, at most `MOST_TRACES`, each once."""
    parts = [str(part) for part in sorted(place.path.glob(f"store/ingest-*/{TRACES_FOLDER}/*.parquet"))]
    query = f"""SELECT id, any_value("user") "user", any_value(session) session, any_value(created) created,
            any_value(format) format, any_value(source_file) source_file, any_value(source_line) source_line
        FROM read_parquet(?, union_by_name=true) WHERE "{KINDS[kind][1]}" = ? GROUP BY id ORDER BY id LIMIT {MOST_TRACES}"""
    return select(query, [parts, value], TRACES_FOLDER) if parts else []


def everything_of(place: Place, kind: str, value: str) -> Affected:
    """Every entry and run of a work folder that holds something of theirs, or was made from it; takes seconds.

    Raises:
        DataError: a file of the store is damaged.
    """
    from tracewheel.lineage.forward import affected
    from tracewheel.lineage.work_folder import WorkFolder

    return affected(WorkFolder(place.path), kind, [value])


def _learned(run: FinishedRun, query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of a query over `learned` of a run; earlier versions noted neither users nor lines."""
    path = run.record.path / LEARNED_FILE
    if not path.is_file():
        return []
    names = columns_of([str(path)])
    for key, column in {"user": "user", "session": "session", "file": "source_file", "line": "source_line"}.items():
        query = query.replace(f"{{{key}}}", f'"{column}"' if column in names else "NULL::VARCHAR")
    return select(query.replace("FROM learned", "FROM read_parquet(?)"), [[str(path)], *values], path)


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
