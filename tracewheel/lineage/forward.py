"""Forward: from traces, a session or a user to everything that holds something of theirs, or was made from it.

`affected` looks at every entry of a work folder's store, in the order in which they were made from one another:

- An ingest holds the traces, a curation their episodes, tasks, pairs and counts.
- A warm start is affected if it imitated one of them, rollouts and evaluations if they played a task of theirs.
- An update, a merge or a champion is affected if what it was made from is.

What a run's record says of traces that it learned from (`learned.parquet`) counts where its entries are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import read_columns
from tracewheel.core.run_record import SUMMARY_FILE
from tracewheel.core.store import beside
from tracewheel.curation.curated_folder import EPISODES_FILE, OUTCOMES_FILE, RESERVE, load_tasks
from tracewheel.lineage.backward import LEARNED_FILE, node_of, parent_of
from tracewheel.lineage.graph import Graph, Node
from tracewheel.lineage.log_lines import Lines, find_traces, with_places
from tracewheel.lineage.roads import LEARNING, curated_of, learned, task_ids
from tracewheel.lineage.work_folder import WorkFolder, stage_of
from tracewheel.traces.ingested_folder import PLACES_FOLDER, TRACES_FOLDER

if TYPE_CHECKING:
    import pandas as pd

WHAT = {"trace": "id", "user": "user", "session": "session"}
# Columns of a curation's files that name traces.
TRACE_COLUMNS = ("trace_id", "chosen_trace", "rejected_trace", "diverges_from")
REPORT_FILE = "report.html"


@dataclass(frozen=True)
class Hold:
    """An entry that holds something of the traces, or was made from it.

    Attributes:
        entry: Its name.
        label: A few words.
        why: Each way, in words, with counts.
        traces: The traces that it holds or learned from itself, not through another entry.
        tasks: Their tasks in it.
        splits: Split to how many of these tasks are in it; of a curation.
        adapter: Digests of its weights, where it has an adapter.
    """

    entry: str
    label: str
    why: tuple[str, ...]
    traces: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    splits: dict[str, int] = field(default_factory=dict)
    adapter: dict[str, str] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        return {**asdict(self), "traces": sorted(self.traces), "tasks": sorted(self.tasks), "why": list(self.why)}


@dataclass(frozen=True)
class AffectedRun:
    """A run that asked for an affected entry.

    Attributes:
        run: Its id.
        entries: The affected entries that it asked for.
        report: Its report, where it has one.
        verdict: The gate's, of a complete run.
        version: The model version that it registered.
        adapter: Digests of the adapter that it ended with, where that one is affected.
    """

    run: str
    entries: tuple[str, ...]
    report: str | None = None
    verdict: str | None = None
    version: str | None = None
    adapter: dict[str, str] = field(default_factory=dict)


@dataclass
class Affected:
    """Everything in a work folder that holds something of some traces.

    Attributes:
        what: "trace", "user" or "session".
        values: Which, as stored.
        lines: Ingest to the traces in it and where they lie in the logs, copies included.
        holds: Entry to what it holds, in the order in which entries were made from one another.
        runs: Run to what of it is affected.
        graph: All of this.
    """

    what: str
    values: tuple[str, ...]
    lines: dict[str, Lines]
    holds: dict[str, Hold]
    runs: dict[str, AffectedRun]
    graph: Graph

    @property
    def traces(self) -> frozenset[str]:
        """The ids of the traces."""
        return frozenset(trace for lines in self.lines.values() for trace in lines.stretches)

    def of(self, *stages: str) -> list[Hold]:
        """The affected entries of some stages."""
        return [hold for hold in self.holds.values() if stage_of(hold.entry) in stages]

    @property
    def adapters(self) -> list[Hold]:
        """The affected entries with an adapter or a whole model."""
        return [hold for hold in self.holds.values() if hold.adapter]

    @property
    def datasets(self) -> list[Hold]:
        """The affected ingests and curations."""
        return self.of("ingest", "curate")

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "what": self.what,
            "values": list(self.values),
            "traces": {
                ingest: [
                    {
                        **{name: _plain(value) for name, value in row.items()},
                        "lines": [one._asdict() for one in lines.stretches[str(row["id"])]],
                        "copies": [one._asdict() for one in lines.copies.get(str(row["id"]), ())],
                    }
                    for row in lines.traces.to_dict("records")
                ]
                for ingest, lines in self.lines.items()
            },
            "entries": [hold.to_record() for hold in self.holds.values()],
            "runs": [asdict(run) for run in self.runs.values()],
        }


def affected(folder: WorkFolder, what: str, values: Collection[str]) -> Affected:
    """Everything in a work folder that holds something of some traces, users or sessions.

    Args:
        folder: The work folder.
        what: A key of `WHAT`.
        values: Ids of traces, users or sessions as they are stored; an ingest may have replaced them by pseudonyms.
    """
    found = Affected(what, tuple(sorted(values)), {}, {}, {}, Graph())
    for entry in _in_order(folder):
        hold = _look(folder, found, entry)
        if hold:
            found.holds[entry] = hold
            _draw(folder, found, hold)
    _add_runs(folder, found)
    return found


def _in_order(folder: WorkFolder) -> Iterable[str]:
    """The entries, each after those that it was made from."""
    known = set(folder.entries)
    return TopologicalSorter({name: known.intersection(sources(folder, name)) for name in folder.entries}).static_order()


def sources(folder: WorkFolder, entry: str) -> list[str]:
    """What an entry was made from; of a fetched champion the entry with the same adapter."""
    found = [item.entry for item in folder.inputs(entry)]
    if stage_of(entry) == "champion" and (parent := parent_of(folder, entry)):
        found.append(parent)
    return found


def _look(folder: WorkFolder, found: Affected, entry: str) -> Hold | None:
    """What an entry holds, itself or by what it was made from; None where it holds nothing."""
    stage, path = stage_of(entry), folder.path_of(entry)
    if not path.is_dir():
        return None
    if stage == "ingest":
        return _in_ingest(folder, found, entry)
    if stage == "curate":
        return _in_curation(folder, found, entry)
    why: list[str] = []
    traces: set[str] = set()
    tasks: set[str] = set()
    curated = curated_of(folder, entry)
    if stage in LEARNING and curated in found.holds:
        rows = learned(folder, entry)
        rows = rows[rows["trace_id"].isin(found.traces)]
        for road, of_road in rows.groupby("road", sort=False):
            why.append(f"{road}: {of_road['trace_id'].nunique()} traces, {of_road['task_id'].nunique()} tasks")
        traces, tasks = set(rows["trace_id"]), set(rows["task_id"])
    if stage == "evaluate" and curated in found.holds and (played := task_ids(folder, entry) & found.holds[curated].tasks):
        why.append(f"played {len(played)} of their tasks")
        tasks = played
    # A score, an update or a gate is made from what it read; an evaluation or rollout also from the policy that played.
    through = [one for one in sources(folder, entry) if one in found.holds and one != curated]
    why += [f"made from {one} ({folder.label(one)})" for one in dict.fromkeys(through)]
    if not why:
        return None
    adapter = folder.adapter(entry) if entry in set(folder.adapters()) else {}
    return Hold(entry, folder.label(entry), tuple(why), frozenset(traces), frozenset(tasks), adapter=adapter)


def _in_ingest(folder: WorkFolder, found: Affected, entry: str) -> Hold | None:
    if not (folder.path_of(entry) / TRACES_FOLDER).exists():
        return None
    stored = find_traces(folder.path_of(entry), WHAT[found.what], found.values)
    if stored.empty:
        return None
    lines = found.lines[entry] = with_places(stored, beside(folder.store, entry) / PLACES_FOLDER)
    copies = sum(map(len, lines.copies.values()))
    why = (f"{len(stored)} traces" + (f", and {copies} lines in the logs that are copies of them" if copies else ""),)
    return Hold(entry, folder.label(entry), why, frozenset(stored["id"]))


def _in_curation(folder: WorkFolder, found: Affected, entry: str) -> Hold | None:
    """Rows about the traces in each file, and their tasks by split. Counts of an earlier curation are carried on."""
    import pandas as pd

    path, why, traces = folder.path_of(entry), [], set()
    for file in sorted(path.rglob("*.parquet")):
        columns = [name for name in TRACE_COLUMNS if name in read_columns(file)]
        for column in columns:
            named = _values(file, column, column, found.traces)
            if len(named):
                why.append(f"{file.relative_to(path).as_posix()}: {len(named)} rows ({column})")
                traces |= set(named)
    if not why:
        return None
    tasks = pd.concat([_rows(path / EPISODES_FILE, "trace_id", found.traces, ["task_id", "split"]), _in_reserve(path, found)])
    tasks = tasks.drop_duplicates()
    splits = {str(split): len(rows) for split, rows in tasks.groupby("split")}
    return Hold(entry, folder.label(entry), tuple(why), frozenset(traces), frozenset(tasks["task_id"]), splits)


def _in_reserve(curated: Path, found: Affected) -> pd.DataFrame:
    """Their tasks in the reserve, whose episodes are in no set."""
    import pandas as pd

    reserve = {task.id for task in load_tasks(curated, RESERVE)}
    kept = curated / OUTCOMES_FILE
    if not reserve or not kept.is_file():
        return pd.DataFrame(columns=["task_id", "split"])
    tasks = _rows(kept, "trace_id", found.traces, ["task_id"])
    return tasks[tasks["task_id"].isin(reserve)].assign(split=RESERVE)


def _values(file: Path, column: str, by: str, values: Collection[str]) -> list[str]:
    return list(_rows(file, by, values, [column])[column])


def _rows(file: Path, column: str, values: Collection[str], columns: list[str]) -> pd.DataFrame:
    """The rows of a Parquet file with one of `values` in a column; other rows and columns are not held in memory."""
    import pyarrow.dataset

    rows = pyarrow.dataset.dataset(file)
    if pyarrow.types.is_null(rows.schema.field(column).type):
        return rows.schema.empty_table().select(columns).to_pandas()
    chosen = pyarrow.dataset.field(column).isin(pyarrow.array(sorted(values), pyarrow.string()))
    frame: pd.DataFrame = rows.to_table(columns=columns, filter=chosen).to_pandas()
    return frame


def _add_runs(folder: WorkFolder, found: Affected) -> None:
    for run_id, record in folder.runs.items():
        entries = tuple(name for name in sorted(record.needs() or ()) if name in found.holds)
        kept = record.path / LEARNED_FILE
        noted = kept.is_file() and any(len(_values(kept, "trace_id", *by)) for by in _selectors(found, kept))
        if not entries and not noted:
            continue
        lineage = record.lineage
        chosen = (lineage.get("policies") or {}).get("rl", {})
        summary = record.summary or {}
        report = record.path / REPORT_FILE
        is_affected = noted or chosen.get("entry") in found.holds or not chosen
        run = found.runs[run_id] = AffectedRun(
            run_id,
            entries,
            report.as_posix() if report.is_file() else None,
            summary.get("gate", {}).get("verdict"),
            summary.get("model_version"),
            chosen.get("adapter", {}) if is_affected else {},
        )
        _draw_run(folder, found, run, complete=(record.path / SUMMARY_FILE).is_file())


def _selectors(found: Affected, kept: Path) -> Iterator[tuple[str, Collection[str]]]:
    """How to find the traces in what a run noted: by their ids, and by user or session, whose traces may be gone."""
    yield "trace_id", [*found.traces, *(found.values if found.what == "trace" else ())]
    if found.what in read_columns(kept):
        yield found.what, found.values


def _draw(folder: WorkFolder, found: Affected, hold: Hold) -> None:
    target = node_of(folder, hold.entry)
    graph = found.graph
    if stage_of(hold.entry) == "ingest":
        for trace, places in found.lines[hold.entry].stretches.items():
            node = Node("trace", trace)
            graph.link(node, target, "stored")
            for place in (*places, *found.lines[hold.entry].copies.get(trace, ())):
                line = Node("log line", f"{place.file}:{place.line}" + (f"@{place.offset}" if place.size else ""))
                graph.link(line, node, "read as" if place in places else "a copy of it")
        return
    for one in dict.fromkeys(sources(folder, hold.entry)):
        if one in found.holds:
            graph.link(node_of(folder, one), target, folder.label(hold.entry))
    for split, count in hold.splits.items():
        graph.link(target, Node("split side", f"{hold.entry}/{split}", split), f"{count} of their tasks")


def _draw_run(folder: WorkFolder, found: Affected, run: AffectedRun, *, complete: bool) -> None:
    node = Node("run", run.run, run.verdict or ("complete" if complete else "not complete"))
    for entry in run.entries:
        found.graph.link(node_of(folder, entry), node, "asked for")
    if run.report:
        found.graph.link(node, Node("report", f"{run.run}/{REPORT_FILE}"), "wrote")
    if run.version and run.adapter:
        found.graph.link(node, Node("model version", run.version), "registered")


def _plain(value: Any) -> Any:
    """A value of a data frame as JSON types."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    return value.item() if hasattr(value, "item") else value
