"""Sessions that have grown: their files are read again as a whole, and what is stored of them is replaced.

A session's lines link to one another, so that new lines alone are no conversation.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tracewheel.core.files import read_batches
from tracewheel.core.store import PARTIAL
from tracewheel.core.types import Trace
from tracewheel.traces.counts import Counts

ROWS = 10_000


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
