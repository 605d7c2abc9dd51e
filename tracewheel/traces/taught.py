"""Secrets that records of an earlier ingest revealed, learned again from the logs: only the places of these are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tracewheel.config import IngestConfig
from tracewheel.core.errors import SecretError
from tracewheel.core.types import Trace
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.parquet import NOT_STORABLE
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.whole_files import whole_file_pieces
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.slices import runs_of
from tracewheel.traces.snapshot import Snapshot
from tracewheel.traces.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Collection

WHOLE = 0  # instead of a line: the record is made of several lines


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
