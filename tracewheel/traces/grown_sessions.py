"""What a later ingest reads again: whole sessions that have grown, and the records that revealed secrets.

A session's lines link to one another, so that new lines alone are no conversation: what is stored of it is replaced. Of a
revealed secret only the place is kept, so it is learned again from the logs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tracewheel.config import IngestConfig
from tracewheel.core.errors import SecretError
from tracewheel.core.files import read_batches
from tracewheel.core.store import PARTIAL
from tracewheel.core.types import Trace
from tracewheel.traces.compression import runs_of
from tracewheel.traces.counts import Counts
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.parquet import NOT_STORABLE
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import whole_file_pieces
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.snapshot import Snapshot
from tracewheel.traces.spool import Spool

ROWS = 10_000
WHOLE = 0  # instead of a line: the record is made of several lines


class GrownSessions:
    """The stored traces of files that are read again, and which of them have a new version.

    Args:
        parts: The folder of the stored parts.
        files: The names of the files, as stored.
    """

    def __init__(self, parts: Path, files: Collection[str]) -> None:
        self._stored: set[tuple[str, str]] = set()
        self._replaced: set[tuple[str, str]] = set()
        for part in sorted(parts.glob("part-*.parquet")) if files else ():
            for batch in read_batches(part, ROWS, ("source_file", "id")):
                columns = batch.to_pydict()
                pairs = zip(columns["source_file"], columns["id"], strict=True)
                self._stored.update(pair for pair in pairs if pair[0] in files)

    def holds(self, trace: Trace) -> bool:
        """Whether an earlier version of a trace is stored, and has no new version yet."""
        key = (trace.source_file, trace.id)
        return key in self._stored and key not in self._replaced

    def replace(self, trace: Trace) -> None:
        """Note that a trace's new version was written."""
        if (trace.source_file, trace.id) in self._stored:
            self._replaced.add((trace.source_file, trace.id))

    def drop(self, parts: Path, new: Path) -> Counts:
        """Take the earlier versions out of the parts.

        Args:
            parts: The folder of parts.
            new: The part with the new versions, which stays as it is.

        Returns:
            The counts of the traces taken out.
        """
        dropped = Counts()
        for part in sorted(parts.glob("part-*.parquet")) if self._replaced else ():
            if part != new:
                dropped = dropped + self._drop_from(part)
        self._stored -= self._replaced
        self._replaced = set()
        return dropped

    def _drop_from(self, part: Path) -> Counts:
        import pyarrow
        import pyarrow.parquet

        dropped = Counts()
        stays: list[bool] = []
        for batch in read_batches(part, ROWS, ("source_file", "id")):
            columns = batch.to_pydict()
            stays += [pair not in self._replaced for pair in zip(columns["source_file"], columns["id"], strict=True)]
        if all(stays):
            return dropped
        written, start = part.with_name(f"{PARTIAL}{part.name}"), 0
        with (
            pyarrow.parquet.ParquetFile(part, pre_buffer=False) as file,
            pyarrow.parquet.ParquetWriter(written, file.schema_arrow, compression="zstd") as writer,
        ):
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                of_group = stays[start : start + len(table)]
                start += len(table)
                gone = table.filter(pyarrow.array([not stay for stay in of_group]))
                for row in gone.to_pylist():
                    dropped.numbers["read"] += 1
                    dropped.keep(Trace.from_record(row))
                writer.write_table(table.filter(pyarrow.array(of_group)))
        os.replace(written, part)
        return dropped


def learn_again(config: IngestConfig, redactor: Redactor, snapshot: Snapshot, taught: Mapping[str, Collection[int]]) -> None:
    """Read records of an earlier ingest again, so that the secrets they reveal are found in new records, too.

    Args:
        config: How the logs are read.
        redactor: Learns.
        snapshot: Where the logs lie, and what of them is old.
        taught: The lines of these records by the stored name of their file.

    Raises:
        DataError: a file does not hold its slices any more.
    """
    if not taught:
        return
    largest = config.largest_record_mib << 20
    with Spool() as spool:
        reader = LogReader(config.format, spool, own_readers(config.readers), config.fields)
        for log, (_, path) in zip(snapshot.files, snapshot.places, strict=True):
            lines = taught.get(log.name, ())
            old = [part for part in log.slices if part not in log.new]
            for adjoining in runs_of(old) if lines else ():
                file = LogFile(path, (adjoining[0].begin, adjoining[0].line), largest, adjoining, config.largest_expansion)
                pieces = whole_file_pieces(path, largest, config.largest_expansion) or file.pieces()
                wanted = pieces if WHOLE in lines else (piece for piece in pieces if piece.line in lines)
                _learn(redactor, reader.read(wanted, log.name))
        _learn(redactor, (item for _, item in reader.spooled()))
    redactor.look_for_learned()


def _learn(redactor: Redactor, items: Iterable[Trace | Quarantined]) -> None:
    for item in items:
        with contextlib.suppress(SecretError, *NOT_STORABLE):
            if isinstance(item, Quarantined):
                redactor.quarantined(item)
            else:
                redactor.trace(item)
