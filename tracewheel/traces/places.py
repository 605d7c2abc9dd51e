"""Where each trace lies in the logs: the stretches of bytes that it was read from.

`source_file` and `source_line` of a trace name its first line. A trace made of spans or requests lies on several lines,
perhaps of several files, and an array on one line holds several traces. So an ingest also writes places: a folder of parts
beside those of the traces, one row for each stretch. They are no part of the traces, whose bytes are the same with and without.

A place names its trace by a hash of the id, and a file only where it is not the trace's `source_file`: an id or a name in
which a later record reveals a secret is redacted in the traces alone.

Offsets count from 0 in the file as it is read: uncompressed where it is compressed. Of a record that does not lie in the file
as bytes (a row of a Parquet file, a member of an archive) the line is its number, and the bytes mean nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel.traces.hash_index import hash_of

if TYPE_CHECKING:
    import pyarrow

    from tracewheel.core.types import Trace
    from tracewheel.traces.json_cutter import Piece

ROWS_PER_GROUP = 50_000


class Stretch(NamedTuple):
    """Some bytes of a log.

    Attributes:
        file: Name of the file, as traces store it.
        line: Its first line, from 1.
        offset: Its first byte.
        size: Its bytes.
    """

    file: str
    line: int
    offset: int
    size: int

    @classmethod
    def of(cls, file: str, first: Piece, last: Piece | None = None) -> Stretch:
        """The stretch from one piece of a file to another."""
        last = last or first
        return cls(file, first.line, first.offset, max(0, last.offset + len(last.raw) - first.offset))


Origin = tuple[Stretch, ...]


def origin_of(stretches: Iterable[Stretch]) -> Origin:
    """The stretches once each, in the order of their first occurrence."""
    return tuple(dict.fromkeys(stretches))


class PlacesWriter:
    """Writes the places of one part's traces; nothing when there is none.

    Args:
        path: The file to write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._columns: dict[str, list[Any]] = {name: [] for name in places_schema().names}

    def add(self, origin: Origin, content: bytes, trace: Trace | None = None) -> None:
        """Add the places of a trace.

        Args:
            origin: Where it lies.
            content: Hash of what it shares with its copies.
            trace: The trace, as stored; None for a copy, which is not.
        """
        for stretch in origin:
            file = "" if trace is not None and stretch.file == trace.source_file else stretch.file
            row = (trace_hash(trace.id) if trace else "", content.hex(), file, *stretch[1:])
            for column, value in zip(self._columns.values(), row, strict=True):
                column.append(value)
        if len(self._columns["trace"]) >= ROWS_PER_GROUP:
            self._write()

    def close(self) -> None:
        """Write the remaining rows and close the file."""
        if self._columns["trace"]:
            self._write()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        import pyarrow
        import pyarrow.parquet

        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pyarrow.parquet.ParquetWriter(self._path, places_schema(), compression="zstd")
        self._writer.write_table(pyarrow.table(self._columns, schema=places_schema()))
        self._columns = {name: [] for name in self._columns}


def places_schema() -> pyarrow.Schema:
    """The columns."""
    import pyarrow

    text, number = pyarrow.string(), pyarrow.int64()
    kinds = {"trace": text, "content": text, "file": text}
    return pyarrow.schema([*kinds.items(), ("line", number), ("offset", number), ("size", number)])


def trace_hash(trace_id: str) -> str:
    """The name of a trace in places."""
    return hash_of(trace_id.encode()).hex()


@dataclass(frozen=True)
class Places:
    """Where traces lie.

    Attributes:
        of_trace: Trace to its stretches; without traces of which nothing is known but their first line.
        copies: Trace to the stretches of its copies, which were dropped.
    """

    of_trace: dict[str, Origin]
    copies: dict[str, Origin]


def read_places(folder: Path, sources: Mapping[str, str]) -> Places:
    """The places of some traces; of one that was stored again, as the last part has them.

    Args:
        folder: The folder of parts; there may be none.
        sources: Trace to its `source_file`.
    """
    by_hash = {trace_hash(trace): trace for trace in sources}
    of_trace: dict[str, list[Stretch]] = {}
    by_content: dict[str, list[str]] = {}
    for part in sorted(folder.glob("part-*.parquet")):
        of_part: dict[str, list[Stretch]] = {}
        for row in _rows(part, "trace", by_hash):
            trace = by_hash[row["trace"]]
            of_part.setdefault(trace, []).append(
                Stretch(row["file"] or sources[trace], row["line"], row["offset"], row["size"])
            )
            by_content.setdefault(row["content"], []).append(trace)
        of_trace |= of_part
    copies: dict[str, list[Stretch]] = {}
    for part in sorted(folder.glob("part-*.parquet")):
        for row in _rows(part, "content", by_content):
            for trace in dict.fromkeys(by_content[row["content"]]) if not row["trace"] else ():
                copies.setdefault(trace, []).append(Stretch(row["file"], row["line"], row["offset"], row["size"]))
    return Places(
        {trace: origin_of(found) for trace, found in of_trace.items()},
        {trace: origin_of(found) for trace, found in copies.items()},
    )


def _rows(part: Path, column: str, values: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows of a part whose `column` has one of `values`; memory holds one row group."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.parquet

    wanted = pyarrow.array(sorted(values), pyarrow.string())
    with pyarrow.parquet.ParquetFile(part, pre_buffer=False) as file:
        for group in range(file.num_row_groups if values else 0):
            chosen = compute.is_in(file.read_row_group(group, columns=[column])[column], wanted)
            if compute.any(chosen).as_py():
                yield from file.read_row_group(group).filter(chosen).to_pylist()
