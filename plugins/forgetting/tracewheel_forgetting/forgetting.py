"""Forgetting somebody: what of theirs is in a work folder and in MLflow, deleting it, and the proof that it is gone.

The order makes a kill harmless: the list that keeps them out of every later ingest comes first, the store's ingests, which
tell what is theirs, go last. The same command continues.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from tracewheel import (
    DataError,
    InfrastructureError,
    RetrainConfig,
    content_hash,
    ingest,
    log_files,
    made_of,
    tracking_client,
    write_whole,
)
from tracewheel_forgetting.dvc_places import DvcPlaces, dvc_places
from tracewheel_forgetting.file_search import Search, Searcher
from tracewheel_forgetting.in_mlflow import InMlflow, forget_in_mlflow, look_in_mlflow
from tracewheel_forgetting.scrubbing import Scrubber, drop_lines, vacuum
from tracewheel_forgetting.theirs import SAID_OF, Theirs, Wanted, find_theirs

PROOFS = "forgotten"
DASHBOARD, SERVED = ".dashboard", "serving/logs/*.jsonl"  # in the work folder (docs/dashboard.md, docs/serving.md)


@dataclass(frozen=True)
class Affected:
    """Everything that holds something of theirs.

    Attributes:
        wanted: Whose records.
        theirs: Their traces, records in quarantine and texts.
        made: What the work folder made of them, with the runs that read them.
        search: The search through the work folder and MLflow's local files.
        mlflow: What MLflow holds.
        lines: File and line of what the logs still hold.
        logs: The logs of `ingest.paths`, with their names. They are the user's, wherever they lie.
        dvc: Where DVC keeps copies of data; None outside of a project of DVC's.
        in_dvc: Outputs of DVC's stages, and files of its cache and of local remotes, that hold something.
    """

    wanted: Wanted
    theirs: Theirs
    made: Any
    search: Search
    mlflow: InMlflow
    lines: list[tuple[str, int]]
    logs: dict[Path, str]
    dvc: DvcPlaces | None = None
    in_dvc: tuple[Path, ...] = ()

    def to_record(self, work_dir: Path) -> dict[str, Any]:
        """JSON types."""
        files = [str(_shown(found.path, work_dir)) for found in self.search.found]
        runs = {
            run.record.run_id: {"splits": sorted(run.splits), "learnt": run.learnt, "entries": len(run.entries)}
            for run in self.made.runs
        }
        return {
            "traces": sorted(self.theirs.traces),
            "quarantined": len(self.theirs.records),
            "outcomes": len(self.theirs.outcomes),
            "log_lines": [f"{file}:{line}" for file, line in self.lines],
            "runs": runs,
            "files": files,
            "mlflow": self.mlflow.to_record(),
            "dvc": {
                "files": [str(_shown(path, self.dvc.project)) for path in self.in_dvc] if self.dvc else [],
                "not_searched": list(self.dvc.remotes) if self.dvc else [],
            },
        }


def look_for(config: RetrainConfig, wanted: Wanted) -> Affected:
    """What holds something of theirs; nothing is changed.

    Raises:
        InfrastructureError: MLflow does not answer.
        DataError: a stored part cannot be read.
    """
    with tracking_client(config, "forget", tell, every_artifact=True) as client:
        work_dir, logs = Path(config.work_dir), log_files(config.ingest)
        store = work_dir / "store"
        with tempfile.TemporaryDirectory(prefix="tracewheel-forget-") as place:
            now_in_logs = _ingested_now(config.ingest, Path(place) / "ingested")
            served = _ingested_now(_served(config, logs), Path(place) / "served")
            theirs = find_theirs([*now_in_logs, *served, *sorted(store.glob("ingest-*"))], wanted)
            lines = find_theirs(now_in_logs, wanted).places()
        made = made_of(
            work_dir,
            wanted.who,
            traces=theirs.traces.keys(),
            ingests=[folder.name for folder in theirs.folders if folder.parent == store],
            places=theirs.places(),
        )
        needles = theirs.needles(wanted)
        runs = {run.record.run_id: run for run in made.runs}
        tainted = {name: run.adapters for name, run in runs.items() if run.learnt}
        mlflow = look_in_mlflow(client, config, runs.keys(), tainted, needles)
    searcher, roots, dvc = Searcher(needles), roots_of(config), dvc_places(Path.cwd())
    in_dvc = dvc.search(searcher, [*roots, *logs]) if dvc else []
    found = searcher.search(roots, without=[work_dir / DASHBOARD])  # deleted whole, whatever it holds
    for held in [held for held in found.found if held.path.resolve() in logs]:
        found.found.remove(held)
        numbers = (place.rpartition(":")[2] for place in searcher.places_in(held.path))
        lines += [(logs[held.path.resolve()], int(number)) for number in numbers if number.isdigit()]
    return Affected(wanted, theirs, made, found, mlflow, sorted(set(lines)), logs, dvc, tuple(in_dvc))


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _served(config: RetrainConfig, logs: Collection[Path]) -> Any:
    """How to read what `tracewheel serve` has logged in the work folder, but for what the profile reads itself."""
    own = [str(file) for file in Path(config.work_dir).glob(SERVED) if file.resolve() not in logs]
    return type(config.ingest)(paths=tuple(sorted(own)), redaction=config.ingest.redaction, allow_quarantine=True)


def _ingested_now(config: Any, place: Path) -> list[Path]:
    """An ingest of the logs as they are, of those who were forgotten too."""
    if not config.paths:
        return []
    with contextlib.suppress(DataError):  # no logs are left, or none can be read
        ingest(config, place)
    return [place]


def roots_of(config: RetrainConfig) -> list[Path]:
    """Where something of theirs may be: the work folder, a local MLflow store with its artifacts, and journals of judges.

    A reply in a journal may quote them. Other projects may share it, so its lines are named and left.
    """
    database = _sqlite_file(config)
    named = re.findall(r'"journal":\s*"([^"]+)"', config.model_dump_json())
    journals = [Path(name) for name in ("judge.jsonl", *named)]
    roots = dict.fromkeys([Path(config.work_dir), *([database.parent] if database else []), *journals])
    return [root for root in roots if root.exists() and not any(other in root.parents for other in roots)]


def forget(
    config: RetrainConfig, affected: Affected, *, delete_adapters: bool = False, rewrite_logs: bool = False
) -> dict[str, Any]:
    """Delete what holds something of theirs, and prove it; see `Proof`.

    Args:
        config: The profile.
        affected: What `look_for` found.
        delete_adapters: Whether adapters that learnt from them are deleted, not only marked.
        rewrite_logs: Whether their lines are deleted from the logs, too.

    Raises:
        InfrastructureError: a run holds the store, MLflow does not answer, or something of theirs is left; the message names
            the files.
    """
    wanted, theirs, made = affected.wanted, affected.theirs, affected.made
    needles, at = theirs.needles(wanted), datetime.now(UTC).isoformat(timespec="seconds")
    with tracking_client(config, "forget", tell) as client, made.hold():
        made.keep_out([(SAID_OF[one.by], one.key) for one in theirs.outcomes], theirs.records)
        dropped = _drop_log_lines(affected) if rewrite_logs else 0
        forget_in_mlflow(client, config, affected.mlflow, at, delete_adapters=delete_adapters)
        files = made.clean_records(theirs.sessions(wanted), weights=delete_adapters)
        files = _clean_others(Path(config.work_dir), affected, needles, files)
        entries = made.delete_entries(found.path for found in affected.search.found)
        candidate = made.end_candidate()
        for database in _databases(config):
            vacuum(database)
        done = {
            "at": at,
            "who": sorted(made.hashes),
            "traces": len(theirs.traces),
            "quarantined": len(theirs.records),
            "outcomes": len(theirs.outcomes),
            "log_lines_deleted": dropped,
            "entries_deleted": entries,
            "candidate": candidate,
            "files_cleaned": files,
            "mlflow_traces_deleted": len(affected.mlflow.traces),
            "model_versions": dict.fromkeys(affected.mlflow.versions, "deleted" if delete_adapters else "marked"),
        }
        return _proved(config, done, needles, affected.logs if not rewrite_logs else ())


def _proved(config: RetrainConfig, done: dict[str, Any], needles: list[str], without: Collection[Path]) -> dict[str, Any]:
    """The record of a deletion, with the search that finds nothing; written into the work folder.

    Args:
        config: The profile.
        done: What was deleted.
        needles: What to search for.
        without: Logs that were not to be changed.

    Raises:
        InfrastructureError: it finds something, or cannot read a file.
    """
    work_dir, searcher = Path(config.work_dir), Searcher(needles)
    search = searcher.search(roots_of(config))
    held = [found.path for found in search.found if found.path.resolve() not in without]
    left = [place for path in held for place in searcher.places_in(path)]
    if left or search.unread:
        raise InfrastructureError(
            f"something of theirs may be left in {', '.join([*left, *search.unread][:10])}: delete these by hand, or end what "
            "writes them, and repeat the command"
        )
    proof = {"searched_for": len(needles), "files": search.files, "bytes": search.bytes, "found": 0}
    record = {**done, "proof": proof}
    write_whole(work_dir / PROOFS / f"{content_hash([done['who'], done['at']], 12)}.json", json.dumps(record, indent=2) + "\n")
    return record


def _clean_others(work_dir: Path, affected: Affected, needles: list[str], changed: list[Path]) -> list[str]:
    """Take what is theirs out of everything beside the store that is not changed yet; returns all that is."""
    scrubber, store = Scrubber(needles), work_dir / "store"
    for path in [found.path for found in affected.search.found]:
        if work_dir not in path.parents or store in path.parents or not path.exists():
            continue
        if path.suffix == ".db" or path in changed:
            continue
        if not scrubber.scrub(path):
            path.unlink()
        changed.append(path)
    return sorted(str(path.relative_to(work_dir)) for path in set(changed))


def _sqlite_file(config: RetrainConfig) -> Path | None:
    """The database file of a local MLflow store, None of a server."""
    uri = config.tracking.uri
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def _databases(config: RetrainConfig) -> Iterator[Path]:
    database = _sqlite_file(config)
    if database and database.exists():
        yield database
    yield from sorted((Path(config.work_dir) / ".prefect").glob("*.db"))


def _drop_log_lines(affected: Affected) -> int:
    theirs = affected.theirs
    names = {*affected.wanted.names, *theirs.names}
    records = {
        record.get("sha256") or sha256(record["raw"].encode().strip()).hexdigest()
        for record in theirs.records
        if "sha256" in record or "raw" in record
    }
    wanted = {file for file, _ in affected.lines}
    return sum(drop_lines(path, names, records) for path, name in affected.logs.items() if name in wanted)


def _shown(path: Path, work_dir: Path) -> Path:
    return path.relative_to(work_dir) if work_dir in path.parents else path
