"""Rows by key in Parquet files, to which each opening adds one file.

A key is a hash of everything that its row was made from, so a row is never out of date, and its file may be deleted at any
time. Memory holds 16 bytes a row, and one row group. A file's name holds the digest of its bytes: a damaged one is left out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracewheel.core.files import read_batches
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.store import PARTIAL

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

Keys = npt.NDArray[np.uint64]  # [N, 2]
Places = npt.NDArray[np.int64]  # [N], -1 where a key is unknown

KEY = "key"
GROUP_ROWS = 5_000
MOST_FILES = 32
DIGITS = 16  # of a file's digest in its name


class ResultTable:
    """A table of results in a folder.

    Args:
        folder: The folder.
        name: The table's name; its files are `name-<digest>.parquet`.
        schema: The columns of a row, without the key.
        files: Its files, the oldest first. Missing and damaged ones are left out.
        say: Takes a sentence about what was left out.
    """

    def __init__(
        self, folder: Path, name: str, schema: pyarrow.Schema, files: Sequence[str], say: Callable[[str], None]
    ) -> None:
        import pyarrow
        import pyarrow.parquet

        self._folder, self._name, self.schema = folder, name, schema
        self._stored = schema.insert(0, pyarrow.field(KEY, pyarrow.binary(16)))
        self._files: list[pyarrow.parquet.ParquetFile] = []
        self.files: list[str] = []
        self._groups: list[tuple[int, int]] = []  # file and row group
        self._starts = [0]
        keys: list[Keys] = []
        for file in files:
            path = folder / file
            if problem := _problem(path, name):
                say(f"{path} {problem}: its results are made again")
                continue
            opened = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
            for group in range(opened.num_row_groups):
                self._groups.append((len(self._files), group))
                self._starts.append(self._starts[-1] + opened.metadata.row_group(group).num_rows)
            keys += [_as_keys(batch.column(KEY)) for batch in opened.iter_batches(columns=[KEY])]
            self._files.append(opened)
            self.files.append(file)
        known = np.concatenate(keys) if keys else np.empty((0, 2), dtype=np.uint64)
        self._order = np.argsort(known[:, 0], kind="stable")
        self._first, self._second = known[self._order, 0], known[self._order, 1]
        self._bounds = np.array(self._starts, dtype=np.int64)
        self.used = np.zeros(len(known), dtype=bool)
        self._read: tuple[int, pyarrow.Table] | None = None
        self._partial = folder / f"{PARTIAL}{name}-{os.getpid()}.parquet"
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._waiting: list[pyarrow.Table] = []
        self.added = 0

    def __len__(self) -> int:
        return len(self.used)

    def find(self, keys: Keys) -> Places:
        """The place of each key."""
        if not len(self) or not len(keys):
            return np.full(len(keys), -1, dtype=np.int64)
        found = np.searchsorted(self._first, keys[:, 0]).clip(max=len(self) - 1)
        equal = (self._first[found] == keys[:, 0]) & (self._second[found] == keys[:, 1])
        return np.where(equal, self._order[found], -1)

    def rows(self, places: Places) -> pyarrow.Table:
        """The rows at places, in their order."""
        import pyarrow

        self.used[places] = True
        group_of = np.searchsorted(self._bounds, places, side="right") - 1
        parts, order = [self.schema.empty_table()], [np.empty(0, dtype=np.int64)]
        for group in np.unique(group_of).tolist():
            inside = np.flatnonzero(group_of == group)
            parts.append(self._group(group).take(places[inside] - self._bounds[group]))
            order.append(inside)
        return pyarrow.concat_tables(parts).take(np.argsort(np.concatenate(order)))

    def put(self, keys: Keys, rows: pyarrow.Table) -> None:
        """Add rows; they are found from the next opening on."""
        import pyarrow

        if not len(rows):
            return
        column = pyarrow.array([key.tobytes() for key in keys], type=pyarrow.binary(16))
        self._waiting.append(rows.cast(self.schema).add_column(0, self._stored.field(KEY), column))
        self.added += len(rows)
        if sum(map(len, self._waiting)) >= GROUP_ROWS:
            self._write()

    def finish(self, *, drop_unused: bool = False, without: Collection[tuple[str, str]] = ()) -> list[str]:
        """Write what was added.

        Args:
            drop_unused: Leave out the stored rows that nobody asked for since the table was opened.
            without: Leave out rows with these values, as (column, value).

        Returns:
            The table's files from now on. Those that they replace may be deleted.
        """
        self._write()
        parts = [(file, self._stays(number, drop_unused, without)) for number, file in enumerate(self._files)]
        merged = len(parts) >= MOST_FILES
        kept = [name for name, (_, stays) in zip(self.files, parts, strict=True) if stays.all() and not merged]
        changed = [_groups(*part) for name, part in zip(self.files, parts, strict=True) if name not in kept]
        sources = [itertools.chain.from_iterable(changed)] if merged else changed
        if self._writer is not None:
            self._writer.close()
            sources = [*sources, self._added(without)]
        return [*kept, *filter(None, map(self._placed, sources))]

    def close(self) -> None:
        """Close the files; what was added and not finished is lost."""
        self._read = None
        for file in self._files:
            file.close()
        if self._writer is not None:
            self._writer.close()
        self._partial.unlink(missing_ok=True)

    def _group(self, group: int) -> pyarrow.Table:
        if self._read is None or self._read[0] != group:
            file, number = self._groups[group]
            self._read = group, self._files[file].read_row_group(number, columns=self.schema.names)
        return self._read[1]

    def _write(self) -> None:
        import pyarrow
        import pyarrow.parquet

        if self._waiting:
            self._writer = self._writer or pyarrow.parquet.ParquetWriter(self._partial, self._stored, compression="zstd")
            self._writer.write_table(pyarrow.concat_tables(self._waiting))
            self._waiting = []

    def _stays(self, number: int, drop_unused: bool, without: Collection[tuple[str, str]]) -> npt.NDArray[np.bool_]:
        """Which rows of a file stay."""
        groups = [place for place, (file, _) in enumerate(self._groups) if file == number]
        rows = slice(self._starts[groups[0]], self._starts[groups[-1] + 1]) if groups else slice(0, 0)
        stays = self.used[rows].copy() if drop_unused else np.ones(rows.stop - rows.start, dtype=bool)
        if without:
            columns = sorted({column for column, _ in without})
            batches = self._files[number].iter_batches(columns=columns)
            stays &= np.concatenate([np.zeros(0, dtype=bool), *(~_holds(batch, without) for batch in batches)])
        return stays

    def _added(self, without: Collection[tuple[str, str]]) -> Iterator[pyarrow.Table]:
        import pyarrow

        for batch in read_batches(self._partial, GROUP_ROWS):
            table = pyarrow.Table.from_batches([batch])
            yield table.filter(pyarrow.array(~_holds(batch, without))) if without else table

    def _placed(self, tables: Iterable[pyarrow.Table]) -> str:
        """Write tables into a file, and name it by its bytes. Returns "" where there are no rows."""
        import pyarrow.parquet

        written = self._partial.with_suffix(".new")
        rows = 0
        with pyarrow.parquet.ParquetWriter(written, self._stored, compression="zstd") as writer:
            for table in tables:
                if len(table):
                    writer.write_table(table)
                rows += len(table)
        if not rows:
            written.unlink()
            return ""
        name = f"{self._name}-{digest_file(written)[:DIGITS]}.parquet"
        os.replace(written, self._folder / name)
        return name


def _problem(path: Path, name: str) -> str:
    """Why a file cannot be used, or ""."""
    if not path.is_file():
        return "is missing"
    return "" if path.name == f"{name}-{digest_file(path)[:DIGITS]}.parquet" else "is damaged"


def _groups(file: pyarrow.parquet.ParquetFile, stays: npt.NDArray[np.bool_]) -> Iterator[pyarrow.Table]:
    """The rows of a file that stay, a row group at a time."""
    import pyarrow

    start = 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        yield table.filter(pyarrow.array(stays[start : start + len(table)]))
        start += len(table)


def _holds(batch: pyarrow.RecordBatch, values: Collection[tuple[str, str]]) -> npt.NDArray[np.bool_]:
    """Which rows of a batch hold one of the values."""
    found = np.zeros(batch.num_rows, dtype=bool)
    for name in {column for column, _ in values}:
        wanted = {value for column, value in values if column == name}
        found |= np.array([value in wanted for value in batch.column(name).to_pylist()], dtype=bool)
    return found


def _as_keys(column: pyarrow.Array) -> Keys:
    return np.frombuffer(b"".join(column.to_pylist()), dtype=np.uint64).reshape(-1, 2)
