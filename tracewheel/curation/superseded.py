"""Finds conversations that a later ingest stored again, longer: logs of requests grow while conversations go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracewheel.core.files import read_batches
from tracewheel.traces.readers.requests import FORMAT, history_hashes

COLUMNS = ["id", "session", "user", "format", "messages", "outcome"]
ROWS_AT_ONCE = 2000


def superseded_traces(traces: Path) -> frozenset[str]:
    """The ids of traces that are the beginning of another one of the same session and user.

    Only traces from logs of requests count, as only these are stored piece by piece; one with an outcome ended there.
    """
    import pyarrow.dataset

    ends: dict[bytes, list[str]] = {}
    beginnings: set[bytes] = set()
    for file in map(Path, pyarrow.dataset.dataset(traces, format="parquet").files):
        for row in _rows_of_requests(file):
            owner = f"{row['session']}\0{row['user']}\0".encode()
            *earlier, end = (owner + part for part in history_hashes(json.loads(row["messages"])))
            beginnings.update(earlier)
            if row["outcome"] is None:
                ends.setdefault(end, []).append(row["id"])
    return frozenset(identity for end in ends.keys() & beginnings for identity in ends[end])


def _rows_of_requests(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.compute

    # The column of formats is short; most files have no logs of requests, and their conversations need not be read for this.
    formats = (batch.column("format") for batch in read_batches(file, ROWS_AT_ONCE, ["format"]))
    if any(pyarrow.compute.any(pyarrow.compute.equal(column, FORMAT)).as_py() for column in formats):
        for batch in read_batches(file, ROWS_AT_ONCE, COLUMNS):
            yield from batch.filter(pyarrow.compute.equal(batch.column("format"), FORMAT)).to_pylist()
