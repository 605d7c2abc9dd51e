"""Forgetting somebody: what of theirs is in a work folder and in MLflow, deleting it, and the proof that it is gone.

The order makes a kill harmless: the list that keeps them out of every later ingest comes first, the store's ingests, which
tell what is theirs, go last. The same command continues.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tasks.afterwards.forgetting_mlflow import InMlflow, forget_in_mlflow, look_in_mlflow
from tasks.engine.reading import CHAIN_FILE, FOLDER
from tasks.records.gate_ledger import CANDIDATE, end, entries_of, waiting_candidate
from tasks.tracking.client import sqlite_file
from tasks.tracking.promotion import now
from tracewheel.config import IngestConfig, RetrainConfig
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.run_record import RunRecord, find_runs
from tracewheel.core.store import FACTS, Store, beside, remove, write_whole
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import SPLITS_FILE
from tracewheel.curation.split_record import identity_key
from tracewheel.dashboard.digests import FOLDER as DASHBOARD
from tracewheel.gateway.conversation_log import SERVED_FOLDER
from tracewheel.lineage import forward
from tracewheel.lineage.backward import LEARNED_FILE
from tracewheel.lineage.work_folder import WorkFolder
from tracewheel.operations.dvc_places import DvcPlaces, dvc_places
from tracewheel.operations.file_search import Search, Searcher
from tracewheel.operations.forgetting import Theirs, Wanted, find_theirs
from tracewheel.operations.scrubbing import Scrubber, drop_lines, drop_rows, vacuum
from tracewheel.policy.adapters import ADAPTER, MODEL, digests_of
from tracewheel.traces.discovery import find_files, find_outcomes
from tracewheel.traces.forgotten import LEARNT, read_forgotten
from tracewheel.traces.ingest import ingest
from tracewheel.traces.snapshot import Snapshot, take_snapshot

PROOFS = "forgotten"


@dataclass(frozen=True)
class Reader:
    """A run that has read something of theirs.

    Attributes:
        record: The run.
        sides: The splits that tasks of their traces are in, as far as its curation is in the store.
        entries: What it asked for of the store.
        learnt: Whether its adapter learnt from them, itself or through the champion that it began with; also where neither the
            store nor the run's record can tell.
        adapters: Digests of these adapters: of the one that it ended with, and of those in the store.
    """

    record: RunRecord
    sides: frozenset[str]
    entries: frozenset[str]
    learnt: bool
    adapters: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Affected:
    """Everything that holds something of theirs.

    Attributes:
        wanted: Whose records.
        theirs: Their traces, records in quarantine and texts.
        readers: The runs, latest first.
        search: The search through the work folder and MLflow's local files.
        mlflow: What MLflow holds.
        lines: File and line of what the logs still hold.
        logs: The logs of `ingest.paths`, with their names. They are the user's, wherever they lie.
        dvc: Where DVC keeps copies of data; None outside of a project of DVC's.
        in_dvc: Outputs of DVC's stages, and files of its cache and of local remotes, that hold something.
    """

    wanted: Wanted
    theirs: Theirs
    readers: list[Reader]
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
            reader.record.run_id: {"splits": sorted(reader.sides), "learnt": reader.learnt, "entries": len(reader.entries)}
            for reader in self.readers
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
        MlflowAway: MLflow does not answer.
        DataError: a stored part cannot be read.
    """
    work_dir = Path(config.work_dir)
    with tempfile.TemporaryDirectory(prefix="tracewheel-forget-") as place:
        logs = _logs(config)
        now_in_logs = _ingested_now(config.ingest, Path(place) / "ingested")
        served = _ingested_now(_served(config, logs), Path(place) / "served")
        theirs = find_theirs([*now_in_logs, *served, *sorted((work_dir / "store").glob("ingest-*"))], wanted)
        lines = find_theirs(now_in_logs, wanted).places()
    readers = _readers(work_dir, theirs, wanted)
    needles = theirs.needles(wanted)
    mlflow = look_in_mlflow(
        config,
        {reader.record.run_id for reader in readers},
        {reader.record.run_id: reader.adapters for reader in readers if reader.learnt},
        needles,
    )
    searcher, roots, dvc = Searcher(needles), roots_of(config), dvc_places(Path.cwd())
    in_dvc = dvc.search(searcher, [*roots, *logs]) if dvc else []
    found = searcher.search(roots, without=[work_dir / DASHBOARD])  # deleted whole, whatever it holds
    for held in [held for held in found.found if held.path.resolve() in logs]:
        found.found.remove(held)
        numbers = (place.rpartition(":")[2] for place in searcher.places_in(held.path))
        lines += [(logs[held.path.resolve()], int(number)) for number in numbers if number.isdigit()]
    return Affected(wanted, theirs, readers, found, mlflow, sorted(set(lines)), logs, dvc, tuple(in_dvc))


def _logs(config: RetrainConfig) -> dict[Path, str]:
    """The logs of the profile with their names; of a path that is gone, none."""
    there = []
    for path in config.ingest.paths:
        with contextlib.suppress(DataError):
            find_files([path])
            there.append(path)
    said: dict[str, Path] = {}
    with contextlib.suppress(DataError):
        said = find_outcomes(config.ingest)
    return {file: name for name, file in [*find_files(there).items(), *said.items()]}


def _served(config: RetrainConfig, logs: Collection[Path]) -> IngestConfig:
    """How to read what `tracewheel serve` has logged in the work folder, but for what the profile reads itself."""
    own = [str(file) for file in (Path(config.work_dir) / SERVED_FOLDER).glob("*.jsonl") if file.resolve() not in logs]
    return IngestConfig(paths=tuple(sorted(own)), redaction=config.ingest.redaction, allow_quarantine=True)


def _ingested_now(config: IngestConfig, place: Path) -> list[Path]:
    """An ingest of the logs as they are, of those who were forgotten too."""
    if not config.paths:
        return []
    with contextlib.suppress(DataError):  # no logs are left, or none can be read
        ingest(config, place, take_snapshot(config))
    return [place]


def roots_of(config: RetrainConfig) -> list[Path]:
    """Where something of theirs may be: the work folder, a local MLflow store with its artifacts, and journals of judges.

    A reply in a journal may quote them. Other projects may share it, so its lines are named and left.
    """
    database = sqlite_file(config.tracking.uri)
    named = re.findall(r'"journal":\s*"([^"]+)"', config.model_dump_json())
    journals = [Path(name) for name in ("judge.jsonl", *named)]
    roots = dict.fromkeys([Path(config.work_dir), *([database.parent] if database else []), *journals])
    return [root for root in roots if root.exists() and not any(other in root.parents for other in roots)]


def _readers(work_dir: Path, theirs: Theirs, wanted: Wanted) -> list[Reader]:
    """The runs that read one of their records: by the lineage of the store's entries, and by the runs' snapshots."""
    if not any(folder.is_dir() for folder in (work_dir / "store", *work_dir.glob("*/"))):
        return []
    folder, places = WorkFolder(work_dir), theirs.places()
    kinds = (("user", wanted.users), ("session", wanted.sessions), ("trace", wanted.traces | frozenset(theirs.traces)))
    found = [forward.affected(folder, kind, names) for kind, names in kinds if names]
    quarantines = {folder.name for folder in theirs.folders}
    readers = []
    for run_id, record in folder.runs.items():
        of_run = [holds.runs[run_id] for holds in found if run_id in holds.runs]
        entries = frozenset(record.needs() or ())
        if not (of_run or entries & quarantines or _covers(record, places, wanted)):
            continue
        held = [holds.holds[name] for holds in found for name in entries if name in holds.holds]
        sides = frozenset(split for hold in held for split in hold.splits)
        known = (record.path / LEARNED_FILE).is_file() or any((folder.store / name).is_dir() for name in entries)
        learnt = any(run.adapter for run in of_run) or any(hold.adapter for hold in held)
        learnt = learnt or not known
        own = [record.path / kind for kind in (ADAPTER, MODEL) if (record.path / kind).is_dir()] if learnt else []
        digests = {digest for hold in held for digest in hold.adapter.values()}
        digests |= {digest for weights in own for digest in digests_of(weights).values()}
        readers.append(Reader(record, sides, entries, learnt, frozenset(digests)))
    return readers


def _covers(record: RunRecord, places: Iterable[tuple[str, int]], wanted: Wanted) -> bool:
    """Whether a run read one of these lines: its snapshot has them, and it did not leave them out."""
    if record.snapshot is None:
        return False
    snapshot = Snapshot.from_record(record.snapshot)
    if wanted.hashes <= snapshot.forgotten.hashes:
        return False
    parts = {log.name: [(part.line, part.next_line) for part in log.slices] for log in snapshot.files}
    return any(begin <= line < max(end, begin + 1) for file, line in places for begin, end in parts.get(file, ()))


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
        InfrastructureError: a run holds the store, or something of theirs is left; the message names the files.
        MlflowAway: MLflow does not answer.
    """
    work_dir, wanted, theirs = Path(config.work_dir), affected.wanted, affected.theirs
    needles = theirs.needles(wanted)
    with Store(work_dir / "store").exclusive():
        adapters = frozenset[str]().union(*(reader.adapters for reader in affected.readers))
        read_forgotten(work_dir).adding(wanted.hashes | theirs.hashes, adapters).write(work_dir)
        remove(work_dir / DASHBOARD)
        dropped = _drop_log_lines(affected) if rewrite_logs else 0
        forget_in_mlflow(config, affected.mlflow, delete_adapters=delete_adapters)
        files = _clean_records(work_dir, affected, needles, delete_adapters=delete_adapters)
        entries = _free_store(work_dir, affected)
        candidate = _end_candidate(work_dir)
        remove(work_dir / DASHBOARD)  # again: a dashboard that is open may have begun to read what was still there
        for database in _databases(config):
            vacuum(database)
        done = {
            "at": now(),
            "who": sorted(wanted.hashes),
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


def _clean_records(work_dir: Path, affected: Affected, needles: list[str], *, delete_adapters: bool) -> list[str]:
    """Take what is theirs out of everything beside the store; returns the files that were changed or deleted."""
    changed, scrubber, store = [], Scrubber(needles), work_dir / "store"
    for reader in affected.readers:
        for page in reader.record.path.glob("*.html"):  # its episodes' tokens are theirs, however they are written
            remove(page)
            changed.append(page)
        if delete_adapters and reader.learnt:
            for weights in (ADAPTER, MODEL):
                remove(reader.record.path / weights)
        rows = ((SPLITS_FILE, "key", _identity_keys(affected)), (LEARNED_FILE, "trace_id", sorted(affected.theirs.traces)))
        for name, column, values in rows:
            if (kept := reader.record.path / name).is_file() and drop_rows(kept, column, values):
                changed.append(kept)
    for found in affected.search.found:
        if work_dir not in found.path.parents or store in found.path.parents or not found.path.exists():
            continue
        if found.path.suffix == ".db" or found.path in changed:
            continue
        if not scrubber.scrub(found.path):
            remove(found.path)
        changed.append(found.path)
    return sorted(str(path.relative_to(work_dir)) for path in set(changed))


def _identity_keys(affected: Affected) -> list[str]:
    """Their keys in a record of splits. Those of tasks stay: a copy that comes back must not change its side."""
    sessions = {
        trace.session for trace in affected.theirs.traces.values() if trace.session and trace.user in affected.wanted.users
    }
    users = [identity_key("user", name) for name in affected.wanted.users]
    return [*users, *(identity_key("session", name) for name in sessions | affected.wanted.sessions)]


def _free_store(work_dir: Path, affected: Affected) -> int:
    """Delete every stored result that comes from something of theirs; returns how many."""
    store = work_dir / "store"
    readers = {reader.record.run_id for reader in affected.readers}
    others: set[str] = set()
    for record in find_runs(work_dir):
        others |= set() if record.run_id in readers else record.needs() or set()
    held = {folder for found in affected.search.found if (folder := _entry_of(found.path, store))}
    ours = {name for reader in affected.readers for name in reader.entries} - others
    names = ours | held
    last = {folder.name for folder in affected.theirs.folders if folder.parent == store}
    for place in (Store(store).reuse, work_dir / FOLDER, work_dir / CHAIN_FILE):
        remove(place)
    for name in [*sorted(names - last), *sorted(last)]:
        remove(store / FACTS / f"{name}.json")
        remove(beside(store, name))
        remove(store / name)
    return len(names | last)


def _end_candidate(work_dir: Path) -> str | None:
    """End the wait of a candidate that learnt from them, or whose evidence is on tasks of theirs; returns why."""
    if (line := waiting_candidate(str(work_dir))) is None:
        return None
    if line[CANDIDATE]["digest"] in read_forgotten(work_dir).adapters:
        why = f"it {LEARNT}"
    elif any(not (work_dir / "store" / name).is_dir() for name in entries_of(line)):
        why = "its evidence is on tasks of somebody who was forgotten since"
    else:
        return None
    end(str(work_dir), line["evidence"], why)
    return f"candidate of run {line['run']}: {why}"


def _entry_of(path: Path, store: Path) -> str | None:
    if store not in path.parents:
        return None
    name = path.relative_to(store).parts[0]
    return None if name.startswith(".") else name


def _databases(config: RetrainConfig) -> Iterator[Path]:
    database = sqlite_file(config.tracking.uri)
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


__all__ = ["Affected", "Reader", "forget", "look_for"]
