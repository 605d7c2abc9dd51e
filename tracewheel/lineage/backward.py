"""Backward: from an entry with an adapter to everything that it was made from, and to the traces that it learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import read_table
from tracewheel.core.fingerprint import digest_file
from tracewheel.lineage.graph import Graph, Node
from tracewheel.lineage.log_lines import Lines, find_traces, ingest_of, lines_of, slice_of, snapshot_of
from tracewheel.lineage.roads import COLUMNS, PASSED_ON, curated_of, learned
from tracewheel.lineage.work_folder import UNSAID, WorkFolder, stage_of

if TYPE_CHECKING:
    import pandas as pd

LEARNED_FILE = "learned.parquet"
# How an input's role reads as a reason; other roles stand for themselves.
REASONS = {
    "traces": "traces",
    "earlier": "pass rates and traces of earlier",
    "splits": "sides of the splits",
    "curated": "tasks",
    "policy": "the policy that played",
    "trajectories": "what was played",
    "rollouts": "what was played",
    "scores": "scores",
    "state": "the weights before",
    "reference": "reference policy",
    "parts": "merged",
    "starts": "start of a part",
    "onto": "merged onto",
}


@dataclass
class Backward:
    """What an adapter was made from.

    Attributes:
        graph: Entries, datasets, files, parent adapters; traces and log lines of at most `limit` traces.
        entries: The entries that it was made from, itself the first.
        learned: A row for each trace, task, road and entry (`roads.COLUMNS`), with every parent's.
        lines: Ingest to where its traces lie, for the traces of `graph` only.
        missing: What could not be followed, in sentences.
    """

    graph: Graph
    entries: list[str]
    learned: pd.DataFrame
    lines: dict[str, Lines] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def roads(self) -> dict[str, int]:
        """Road to the number of traces."""
        return {str(road): int(count) for road, count in self.learned.groupby("road")["trace_id"].nunique().items()}


def trace_back(folder: WorkFolder, entry: str, limit: int = 20) -> Backward:
    """Follow an entry back to the logs.

    Args:
        folder: The work folder that holds it.
        entry: Its name.
        limit: How many traces to draw with their log lines; the table has all.
    """
    import pandas as pd

    graph = Graph()
    missing: list[str] = []
    entries: list[str] = []
    tables = []
    for name in _ancestors(folder, entry, graph, missing):
        entries.append(name)
        if stage_of(name) == "champion":
            tables.append(_of_parent(folder, name, missing))
        else:
            tables += [learned(folder, name), _passed_on(folder, name)]
        _add_files(folder, name, graph)
    table = pd.concat([part for part in tables if len(part)] or [pd.DataFrame(columns=list(COLUMNS))], ignore_index=True)
    found = Backward(graph, entries, table.drop_duplicates(), missing=missing)
    _draw_traces(folder, found, limit)
    return found


def learned_rows(folder: WorkFolder, entry: str) -> pd.DataFrame:
    """The table of `trace_back` with `user`, `session`, `source_file` and `source_line` of each trace, sorted."""
    table = trace_back(folder, entry, limit=1).learned
    parts = []
    for curated, rows in table.groupby("curated", sort=True):
        ingest = ingest_of(folder, str(curated))
        if ingest is None or not folder.path_of(ingest).is_dir():
            parts.append(rows)
            continue
        traces = find_traces(folder.path_of(ingest), "id", set(rows["trace_id"])).rename_axis(None)
        named = traces[["id", "user", "session", "source_file", "source_line"]].rename(columns={"id": "trace_id"})
        parts.append(rows.merge(named, on="trace_id", how="left"))
    import pandas as pd

    every = pd.concat(parts, ignore_index=True) if parts else table
    return every.sort_values(["trace_id", "task_id", "road", "entry"], ignore_index=True)


def node_of(folder: WorkFolder, entry: str) -> Node:
    """The node of an entry: a data set, an adapter, or the result of another stage."""
    adapter = folder.adapter(entry) if stage_of(entry) in ("warm_start", "update", "go_back", "merge", "champion") else {}
    facts = {"stage": stage_of(entry), "digest": folder.facts(entry).get("digest"), "runs": folder.runs_with(entry)}
    if adapter:
        return Node("adapter", entry, folder.label(entry), {**facts, "adapter": adapter})
    kind = "dataset" if stage_of(entry) in ("ingest", "curate") else "entry"
    return Node(kind, entry, folder.label(entry), facts)  # type: ignore[arg-type]


def _ancestors(folder: WorkFolder, entry: str, graph: Graph, missing: list[str]) -> Iterator[str]:
    """An entry and all that it was made from, each once; parents of a champion are followed through the run that made it."""
    waiting, seen = [entry], {entry}
    while waiting:
        name = waiting.pop(0)
        yield name
        target = graph.add(node_of(folder, name))
        if not folder.facts(name):
            missing.append(f"{name} is no longer in the store: what it was made from is known as far as a run's record says")
        inputs = [(item.entry, _reason(item.role, item.note)) for item in folder.inputs(name)]
        if stage_of(name) == "champion" and (parent := parent_of(folder, name)):
            inputs.append((parent, "the registered champion"))
        for source, reason in inputs:
            graph.link(node_of(folder, source), target, reason)
            if source not in seen:
                seen.add(source)
                waiting.append(source)


def parent_of(folder: WorkFolder, champion: str) -> str | None:
    """The entry whose adapter a run fetched as champion; None where this work folder's store does not hold it."""
    digest, fetched = champion_digest(folder, champion), folder.finished(champion)
    made = [name for name in folder.by_digest(digest) if stage_of(name) != "champion"] if digest else []
    return min((name for name in made if folder.finished(name) <= fetched), key=folder.finished, default=None)


def champion_digest(folder: WorkFolder, champion: str) -> str:
    """The digest of the weights that a champion's entry holds."""
    named = folder.made(champion).get("arguments", {}).get("digest")
    return str(named or folder.adapter(champion).get("digest", ""))


def _of_parent(folder: WorkFolder, champion: str, missing: list[str]) -> pd.DataFrame:
    """What the run that made a champion noted of its learning, where its entries are gone."""
    import pandas as pd

    nothing = pd.DataFrame(columns=list(COLUMNS))
    if parent_of(folder, champion):
        return nothing  # its own entries say it
    digest = champion_digest(folder, champion)
    kept = _noted_of(folder, digest)
    if kept is None:
        missing.append(f"{champion}: this work folder has neither the entry nor the run that made the champion {digest[:16]}")
    return nothing if kept is None else kept


def _passed_on(folder: WorkFolder, entry: str) -> pd.DataFrame:
    """What a run noted of the learning of a candidate, whose weights outlive what they were made from."""
    import pandas as pd

    kept = None
    if any(not folder.facts(item.entry) for item in folder.inputs(entry)):
        kept = _noted_of(folder, str(folder.adapter(entry).get("digest", "")))
    return pd.DataFrame(columns=list(COLUMNS)) if kept is None else kept


def _noted_of(folder: WorkFolder, digest: str) -> pd.DataFrame | None:
    """What the run that ended with an adapter noted of its learning; None without one."""
    run = run_of_adapter(folder, digest)
    if run is None or not (folder.path / run / LEARNED_FILE).is_file():
        return None
    kept = read_table(folder.path / run / LEARNED_FILE)
    return kept.assign(road=PASSED_ON + ": " + kept["road"].str.removeprefix(PASSED_ON + ": "))[list(COLUMNS)]


def run_of_adapter(folder: WorkFolder, digest: str) -> str | None:
    """The run whose record names an adapter of this digest as its result."""
    for run_id, record in folder.runs.items():
        chosen = (record.lineage.get("policies") or {}).get("rl", {}).get("adapter", {})
        if digest and any(str(value).startswith(digest) for value in chosen.values()):
            return run_id
    return None


def _add_files(folder: WorkFolder, name: str, graph: Graph) -> None:
    """Link what an entry reads besides entries: logs, replay text, a teacher's work."""
    target = node_of(folder, name)
    if stage_of(name) == "ingest":
        for run in folder.runs_with(name)[:1]:
            for log in (folder.runs[run].snapshot or {}).get("files", ()):
                for part in log["slices"]:
                    where = f"{log['name']} bytes {part['begin']} to {part['end']}, lines from {part['line']}"
                    graph.link(Node("log file", f"{log['name']}@{part['sha256'][:16]}", where, part), target, "read")
        return
    config = folder.config(name) if stage_of(name) in ("warm_start", "update") else None
    if config is None:
        return
    paths = [config.warm_start.replay.path] if stage_of(name) == "warm_start" else [config.learner.replay_path]
    for path in paths:
        if path:
            graph.link(_file_node(Path(path)), target, "replay text")
    for taught in config.warm_start.extra_demonstrations if stage_of(name) == "warm_start" else ():
        graph.link(_file_node(Path(taught) / "episodes.parquet"), target, "a teacher's solutions")
    teacher = getattr(getattr(config.learner, "advantage", None), "adapter", None)
    if teacher and stage_of(name) == "update":
        graph.link(_file_node(Path(teacher) / "adapter_model.safetensors"), target, "the teacher of the advantage")


def _file_node(path: Path) -> Node:
    facts = {"sha256": digest_file(path)} if path.is_file() else {"missing": True}
    return Node(
        "file", path.name if path.is_absolute() else path.as_posix(), "" if path.is_file() else "no longer there", facts
    )


def _draw_traces(folder: WorkFolder, found: Backward, limit: int) -> None:
    """Add the first traces by each road, their tasks and log lines."""
    first = found.learned.groupby("road", sort=False).head(max(1, limit // max(1, found.learned["road"].nunique())))
    for curated, rows in first.groupby("curated", sort=False):
        ingest = ingest_of(folder, str(curated))
        if ingest is None or not folder.path_of(ingest).is_dir():
            found.missing.append(f"the ingest of {curated} is no longer in the store: its lines are not known")
            continue
        lines = found.lines[ingest] = lines_of(folder, ingest, set(rows["trace_id"]))
        for row in rows.to_dict("records"):
            _draw(folder, found, ingest, {str(name): value for name, value in row.items()}, lines)


def _draw(folder: WorkFolder, found: Backward, ingest: str, row: dict[str, Any], lines: Lines) -> None:
    trace = Node("trace", row["trace_id"], facts={"ingest": ingest})
    task = Node("task", row["task_id"], facts={"curated": row["curated"]})
    found.graph.link(trace, task, "asks for it")
    found.graph.link(task, node_of(folder, row["entry"]), row["road"])
    snapshot = folder.once(("snapshot", ingest), lambda: snapshot_of(folder, ingest))
    for place in lines.stretches.get(row["trace_id"], ()):
        facts = {"file": place.file, "line": place.line}
        facts |= {"offset": place.offset, "size": place.size} if place.size else {}
        facts["slice"] = slice_of(snapshot, place)
        line = Node("log line", f"{place.file}:{place.line}" + (f"@{place.offset}" if place.size else ""), facts=facts)
        found.graph.link(line, trace, "read as")


def _reason(role: str, note: str) -> str:
    said = REASONS.get(role, role)
    if note == UNSAID:
        return f"{said} ({note})"
    return said


__all__ = ["LEARNED_FILE", "Backward", "curated_of", "node_of", "parent_of", "run_of_adapter", "trace_back"]
