"""Reads whole files without an archive: for benchmarks, tests and interactive use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tracewheel.core.errors import DataError
from tracewheel.core.files import LARGEST_EXPANSION
from tracewheel.core.kind_table import how_to_get
from tracewheel.core.log_formats import AUTO, LOG_FILES
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import LARGEST, Piece
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.spool import Spool


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
