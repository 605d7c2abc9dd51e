"""Reads files without an archive: for looks at logs, benchmarks, tests and interactive use."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import LARGEST_EXPANSION
from tracewheel.core.kind_table import how_to_get
from tracewheel.core.log_formats import AUTO, LOG_FILES
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import LARGEST, Piece
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.spool import Spool

REMEMBERED = 64 << 20  # bytes of a record's lines that are held


def read_traces(
    paths: dict[str, Path], format: str = AUTO, own: Iterable[Reader] = (), fields: Mapping[str, str] | None = None
) -> Iterator[Trace | Quarantined]:
    """The traces of files, in order; traces made of spans come last.

    Args:
        paths: The files by the names to store with records.
        format: A format's name, or "auto".
        own: Readers of the user's own.
        fields: Paths of fields, as in `ingest.fields`.

    Raises:
        OSError: a file cannot be read.
    """
    with Spool() as spool:
        reader = LogReader(format, spool, own, fields)
        for name, path in paths.items():
            yield from reader.read(pieces_of(path), name)
        for _, item in reader.spooled():
            yield item


def read_first(config: IngestConfig, path: Path, most: int) -> Iterator[Trace | Quarantined]:
    """The records in about the first `most` bytes of a log file as they are read; nothing is redacted or written."""
    with Spool() as spool:
        reader = LogReader(config.format, spool, own_readers(config.readers), config.fields)
        yield from reader.read(_within(pieces_of(path), most), path.name)
        yield from (item for _, item in reader.spooled())


def _within(pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        most -= len(piece.raw)
        if most <= 0:
            return


def records_of(config: IngestConfig, path: Path) -> Iterator[tuple[Trace | Quarantined, list[bytes]]]:
    """The records of a log file as they are read, each with the bytes of its lines or parts; nothing is redacted or written."""
    with Spool() as spool:
        reader = LogReader(config.format, spool, own_readers(config.readers), config.fields)
        memory = _Memory()
        for item in reader.read(memory.of(pieces_of(path)), path.name):
            yield item, [item.raw] if isinstance(item, Quarantined) else memory.take(item.source_line)
        for group, item in reader.spooled():
            if isinstance(item, Quarantined):
                yield item, [item.raw]
            else:
                own = (piece.raw for piece in pieces_of(path) if piece.line == item.source_line)
                yield item, group.raws if group else [*itertools.islice(own, 1)]


class _Memory:
    """The pieces that a reader has taken since its last record."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._size = 0

    def of(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self._size += len(piece.raw)
            if self._size <= REMEMBERED:
                self._pieces.append(piece)
            yield piece

    def take(self, line: int) -> list[bytes]:
        taken, self._pieces, self._size = self._pieces, [], 0
        return [piece.raw for piece in taken if piece.line >= line] or [piece.raw for piece in taken]


def pieces_of(path: Path) -> Iterator[Piece]:
    """The records of a file of any kind."""
    pieces = whole_file_pieces(path)
    return LogFile(path).pieces() if pieces is None else pieces


def whole_file_pieces(path: Path, largest: int = LARGEST, expansion: int = LARGEST_EXPANSION) -> Iterator[Piece] | None:
    """The records of such a file; None for any other.

    Args:
        path: The file.
        largest: Bytes of the largest record; of a larger one nothing is read.
        expansion: To how many times its size the file may expand.

    Raises:
        DataError: the wheel that reads such files is not installed.
    """
    kind = _kind(path)
    if kind not in LOG_FILES and (how := how_to_get("log file", kind)):
        raise DataError(f"{path}: what reads .{kind} files is {how}")
    pieces: Iterator[Piece] | None = LOG_FILES[kind](path, largest, expansion) if kind in LOG_FILES else None
    return pieces


def is_whole_file(path: Path) -> bool:
    """Whether a file is of a kind that `whole_file_pieces` reads, or would with its wheel."""
    return _kind(path) in LOG_FILES or how_to_get("log file", _kind(path)) is not None


def _kind(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
