"""Ingests that add to a folder what earlier ones have not read: new files, and what was appended to known ones.

The folder is replaced as a whole or not at all, so a kill leaves the old one. Log files that are gone stay read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.out_folder import check_out_folder
from tracewheel.core.store import disk_errors, produce_whole, recover, write_whole
from tracewheel.core.types import content_hash
from tracewheel.traces.compression import is_compressed
from tracewheel.traces.forgotten import NOBODY, Forgotten
from tracewheel.traces.ingest import Watch, ingest
from tracewheel.traces.ingested_folder import INGESTED, READ_FILE, REPORT_FILE, STATE_FILE, STATE_FOLDER
from tracewheel.traces.readers.plugins import readers_digest
from tracewheel.traces.redaction.pseudonyms import key_digest
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.snapshot import Earlier, Links, LogSlices, Snapshot, take_snapshot

FULL = "ingest everything again with --full"


def ingest_new(
    config: IngestConfig, out: Path, *, full: bool = False, watch: Watch | None = None, forgotten: Forgotten = NOBODY
) -> dict[str, Any]:
    """Add to `out` what earlier calls have not read.

    The beginning of a last line is read as it is, and once more as soon as the line has grown.

    Args:
        config: Which logs to read and what to redact.
        out: The folder.
        full: Read everything again and replace the folder's contents.
        watch: Called with the number of bytes read so far.
        forgotten: Whose records are left out; a folder that was made with another list is read anew with `full`.

    Returns:
        The report of `ingest`, with the counts of this call under `added`.

    Raises:
        DataError: a path has no readable log file, the part of a file that was read before has changed, or `out` holds what
            no ingest has written.
        InfrastructureError: another process is writing to the folder, or the disk is full.
    """
    out, redactor = out.resolve(), Redactor(config.redaction)
    redaction = config.redaction.model_dump(mode="json") | key_digest(config.redaction)
    settings = content_hash(redaction | readers_digest(config) | ({"forgotten": forgotten.digest} if forgotten else {}))
    with _alone(out):
        check_out_folder(out, INGESTED, by="ingest")
        before = None if full else _read_before(out, settings)
        now = take_snapshot(config, before, without=out, with_tails=True)
        skipped = tuple(name for name in now.skipped if Path(name).name != _lock(out).name)
        now = replace(now, forgotten=forgotten, skipped=skipped)
        now, gone = _continued(before, now, out) if before else (now, [])

        def produce(made: Path) -> dict[str, Any]:
            links = Links(made / STATE_FOLDER, made / READ_FILE, *((out, out / STATE_FOLDER) if before else ()))
            report = ingest(config, made, replace(now, links=links), made, redactor=redactor, watch=watch)
            read = replace(now, files=(*(log for log in now.files if log.slices), *gone)).renamed(redactor.name)
            write_whole(made / READ_FILE, json.dumps({"settings": settings, **read.to_record()}, indent=1) + "\n")
            return report

        report: dict[str, Any] = produce_whole(out, produce)
    return {"added": {name: report[name] for name in report if name not in ("skipped", "outcomes")}, **report}


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep others from writing to the folder, and clean up after killed ones."""
    lock = _lock(out)
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    with hold(lock) as held:
        if not held:
            raise InfrastructureError(f"{out}: another ingest is writing to it; wait for it")
        try:
            recover(out)
            yield
        finally:
            lock.unlink(missing_ok=True)


def _lock(out: Path) -> Path:
    return out.with_name(f".lock-{out.name}")


def _read_before(out: Path, settings: str) -> Snapshot | None:
    """What the folder's ingests have read; None of a folder that none has written to."""
    file = out / READ_FILE
    if not (out / REPORT_FILE).exists():
        return None
    if (out / STATE_FILE).exists():
        raise DataError(f"{out}: was ingested by an earlier version of Tracewheel; {FULL}, or choose another --out")
    if not file.exists():
        raise DataError(f"{out}: exists and has no {READ_FILE}; choose another --out, or replace it with --full")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        stored, before = record["settings"], Snapshot.from_record(record)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DataError(f"{file}: cannot be read: {error}; {FULL}") from error
    if stored != settings:
        raise DataError(
            f"{out}: was ingested with other settings of ingest.redaction, ingest.readers or ingest.fields,"
            f" other code of a reader, another key, or before somebody was forgotten; {FULL}, or choose another --out"
        )
    return before


def _continued(before: Snapshot, now: Snapshot, out: Path) -> tuple[Snapshot, list[LogSlices]]:
    """What is to be read beyond what was read before, and what was read of files that are not there any more.

    A file whose name another one has now, as after a rotation, is found by its bytes. A copy is read, to be counted as one.

    Raises:
        DataError: what was read of a file that is there has changed.
    """
    named, known, gone = {log.name: log for log in now.files}, dict[str, LogSlices](), []
    names = {log.name for log in before.files}
    for log in before.files:
        own = named.get(log.name)
        others = (other for other in now.files if other.name not in names | known.keys())
        home = next((file for file in (own, *others) if file and file.slices[: len(log.slices)] == log.slices), None)
        if home is not None:
            known[home.name] = log
        elif own is None:
            gone.append(log)
        else:
            raise _changed(log, own, now.places[now.files.index(own)][1])
    files = [
        replace(log, new=log.slices[len(known[log.name].slices) :] if log.name in known else log.slices) for log in now.files
    ]
    return replace(now, files=tuple(files), earlier=Earlier(out.name, "")), gone


def _changed(log: LogSlices, found: LogSlices, path: Path) -> DataError:
    if not found.grows and found.slices and found.slices[-1].end > log.slices[-1].end:
        kind = "a compressed file" if is_compressed(path) else "a file that is not one record a line"
        return DataError(f"{path}: has grown since it was ingested, and {kind} is read as a whole; {FULL}")
    return DataError(f"{path}: has changed since it was ingested, not only grown; {FULL}")
