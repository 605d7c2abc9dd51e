"""`tracewheel export-traces`: episodes of a run, or ingested traces, in the formats of other projects."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel import Command, DataError, Writes

if TYPE_CHECKING:
    from tracewheel import Card, Score, Trace, Trajectory

FORMATS = ("atif", "openenv")
KINDS = {"rollouts": "rollout", "evaluations": "evaluation"}
RECORD, EPISODES = "export.json", "episodes"
TRACES_FOLDER = "traces.parquet"  # in the output of ingest
TRAJECTORIES, SCORES = "trajectories.parquet", "scores.parquet"
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}")
NO_TURN = "no turn was sampled"


class Document(NamedTuple):
    """A file to write, and what is written into it."""

    path: str
    value: dict[str, Any]


@dataclass
class _Written:
    """What was found and what of it was left out, by reason."""

    episodes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="RUN|DIR",
        help="a run's folder or id, a folder with trajectories.parquet, or the output of `tracewheel ingest`",
    )
    parser.add_argument("--format", choices=FORMATS, required=True, help="what to write")
    parser.add_argument("--only", choices=tuple(KINDS), help="of a run, only these episodes (default: both)")
    parser.add_argument("--scores", metavar="DIR", help="output of score for a folder with trajectories (default: beside them)")
    parser.add_argument("--curated", metavar="DIR", help="output of curate, for the tools of a folder with trajectories")
    parser.add_argument(
        "--run-dir", default="runs", metavar="DIR", help="work folder in which ids are looked up (default: runs)"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it is an earlier export")


def run(options: Namespace) -> dict[str, Any]:
    """Write `episodes/`, a file for each conversation (ATIF) or episode (OpenEnv), and `export.json`; complete or nothing.

    Raises:
        DataError: there is nothing to export there, it is damaged, or the format has no place for it.
    """
    from tracewheel import produce_whole

    record = produce_whole(Path(options.out), lambda out: _write(options, out))
    return {"out": options.out, **record}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card

    left = [f"{count:,} left out: {reason}" for reason, count in result["left_out"].items()]
    again = [f"tracewheel ingest {result['out']}/episodes --out DIR"] if result["format"] == "atif" else []
    title = f"{result['episodes']:,} episodes written to {result['out']} as {result['format']}"
    return Card(title, [("files", f"{result['files']:,}")], look_at="; ".join(left), next=again)


def _write(options: Namespace, out: Path) -> dict[str, Any]:
    from tracewheel import write_json

    written, files = _Written(), 0
    for document in _documents(options, written):
        path = out / EPISODES / document.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document.value, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        files += 1
    if not files:
        reasons = ", ".join(f"{count} with {reason}" for reason, count in written.left_out.items())
        raise DataError(f"{options.source}: nothing to export{reasons and f' ({reasons})'}")
    record = {"format": options.format, "episodes": written.episodes, "files": files, "left_out": dict(written.left_out)}
    write_json(out / RECORD, record)
    return record


def _documents(options: Namespace, written: _Written) -> Iterator[Document]:
    source = Path(options.source)
    if (source / TRACES_FOLDER).exists():
        if options.format != "atif":
            raise DataError(
                f"{source}: ingested traces do not say which tokens each turn was sampled from, and OpenEnv training traces "
                "need that. Use --format atif, or name a run"
            )
        yield from _of_traces(source / TRACES_FOLDER, written)
    elif (source / TRAJECTORIES).is_file():
        tools = _Tools(Path(options.curated) if options.curated else None)
        scores = Path(options.scores) / SCORES if options.scores else source / SCORES
        if options.scores and not scores.is_file():
            raise DataError(f"--scores {options.scores}: holds no {SCORES}; give the output of `tracewheel stage score`")
        yield from _of_file(options.format, source / TRAJECTORIES, _Around(scores, tools), written)
    else:
        yield from _of_run(options, written)


def _of_run(options: Namespace, written: _Written) -> Iterator[Document]:
    from tracewheel import FinishedRun, run_named, sources_of

    run = FinishedRun(run_named(options.source, options.run_dir))
    found = [source for source in sources_of(run) if options.only in (None, f"{source.kind}s")]
    try:
        tools = _Tools(run.curated)
    except DataError:  # the store has lost the tasks
        tools = _Tools(None)
    model = Path(str((run.settings.get("policy") or {}).get("base") or "")).name
    for source in found:
        folder = f"{source.entry}-{source.part}" if source.part else source.entry
        around = _Around(source.scores, tools, model, source.label, f"{folder}/")
        yield from _of_file(options.format, source.trajectories, around, written)


@dataclass(frozen=True)
class _Around:
    """What is known around a file of trajectories."""

    scores: Path | None
    tools: _Tools
    model: str = ""
    label: str = ""
    folder: str = ""


class _Tools:
    """The tools of the tasks that a curation made. Unknown where there is no curation, or the environment cannot say them."""

    def __init__(self, curated: Path | None) -> None:
        from tracewheel import read_table

        self._kinds: dict[str, str] = {}
        self._tools: dict[str, list[dict[str, Any]] | None] = {}
        if curated is not None:
            table = read_table(curated / "tasks.parquet", ["id", "environment"])
            self._kinds = dict(zip(table["id"], table["environment"], strict=True))

    def of(self, task: str) -> list[dict[str, Any]] | None:
        kind = self._kinds.get(task)
        if kind is None:
            return None
        if kind not in self._tools:
            self._tools[kind] = self._ask(kind)
        return self._tools[kind]

    def _ask(self, kind: str) -> list[dict[str, Any]] | None:
        from tracewheel import make_environment

        try:
            return make_environment(kind).tools()
        except Exception:  # a user's environment may need a server, or not be importable here; the episodes are whole without
            return None


def _of_file(format: str, path: Path, around: _Around, written: _Written) -> Iterator[Document]:
    from tracewheel_lab.export import atif, openenv
    from tracewheel_lab.export.episode import Episode

    scores = _scores(around.scores)
    for trajectory in _trajectories(path):
        episode = Episode(
            trajectory, scores.get(trajectory.id), around.tools.of(trajectory.task_id), around.model, around.label
        )
        written.episodes += 1
        if format == "openenv":
            if trajectory.turns:
                yield Document(f"{around.folder}{file_name(trajectory.id)}", openenv.write_episode(episode))
            else:
                written.left_out[NO_TURN] += 1
            continue
        for document in atif.write_episode(episode):
            yield Document(f"{around.folder}{file_name(document['trajectory_id'])}", document)


def _of_traces(path: Path, written: _Written) -> Iterator[Document]:
    from tracewheel_lab.export import atif

    for trace in _traces(path):
        written.episodes += 1
        yield Document(file_name(trace.id), atif.write_trace(trace))


def file_name(identity: str) -> str:
    """The name of a document's file; that of an id that cannot be a file's name is made of its hash."""
    from tracewheel import content_hash

    return f"{identity if FILE_NAME.fullmatch(identity) else content_hash(identity)}.json"


def _scores(path: Path | None) -> dict[str, Score]:
    from tracewheel import Score, read_records

    if path is None or not path.is_file():
        return {}
    return {score.trajectory_id: score for score in read_records(path, Score)}


def _trajectories(path: Path) -> Iterator[Trajectory]:
    from tracewheel import Trajectory

    yield from _records(path, Trajectory)


def _traces(folder: Path) -> Iterator[Trace]:
    from tracewheel import Trace

    for part in sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]:
        yield from _records(part, Trace)


def _records(path: Path, kind: Any) -> Iterator[Any]:
    """Records, a batch at a time.

    Raises:
        DataError: the file is no Parquet file, or its rows are of another kind.
    """
    from tracewheel import read_batches

    try:
        for batch in read_batches(path, rows=200):
            for row in batch.to_pylist():
                yield kind.from_record(row)
    except (OSError, TypeError, ValueError) as error:
        raise DataError(f"{path}: its rows are not {kind.__name__} records: {error}") from error


COMMAND = Command(
    "export-traces",
    "write episodes or ingested traces as ATIF 1.8 or as OpenEnv training traces",
    options,
    run,
    card,
    Writes(("export.json", "episodes"), ("episodes/*.json",)),
)
