"""The log lines of traces: file, line and bytes, and what of a run's snapshot holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.store import beside
from tracewheel.lineage.work_folder import WorkFolder, stage_of
from tracewheel.traces.ingested_folder import PLACES_FOLDER, TRACES_FOLDER
from tracewheel.traces.places import Origin, Stretch, read_places
from tracewheel.traces.snapshot import Snapshot

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("id", "user", "session", "created", "format", "source_file", "source_line")


@dataclass(frozen=True)
class Lines:
    """Where some traces lie in the logs.

    Attributes:
        traces: A row for each, with `COLUMNS`; the index is the id.
        stretches: Trace to its stretches. `size` is 0 where only the first line is known.
        copies: Trace to the stretches of its copies, which the ingest dropped.
    """

    traces: pd.DataFrame
    stretches: Mapping[str, Origin]
    copies: Mapping[str, Origin]


def ingest_of(folder: WorkFolder, curated: str) -> str | None:
    """The ingest that a curation was made from."""
    return next((item.entry for item in folder.inputs(curated) if stage_of(item.entry) == "ingest"), None)


def find_traces(ingested: Path, column: str, values: Collection[str]) -> pd.DataFrame:
    """The stored traces whose `column` is one of `values`, with `COLUMNS`; other columns are not read."""
    import pyarrow.dataset

    parts = pyarrow.dataset.dataset(ingested / TRACES_FOLDER, format="parquet")
    chosen = pyarrow.dataset.field(column).isin(pyarrow.array(sorted(values), pyarrow.string()))
    frame: pd.DataFrame = parts.to_table(columns=list(COLUMNS), filter=chosen).to_pandas()
    return frame.set_index("id", drop=False)


def lines_of(folder: WorkFolder, ingest: str, traces: Collection[str]) -> Lines:
    """Where traces of an ingest lie in the logs."""
    return with_places(find_traces(folder.path_of(ingest), "id", traces), beside(folder.store, ingest) / PLACES_FOLDER)


def with_places(found: pd.DataFrame, places_folder: Path) -> Lines:
    """The lines of traces that were found; of an ingest without places the first line of each."""
    places = read_places(places_folder, dict(zip(found["id"], found["source_file"], strict=True)))
    stretches = dict(places.of_trace)
    for trace, file, line in zip(found["id"], found["source_file"], found["source_line"], strict=True):
        stretches.setdefault(trace, (Stretch(file, int(line), 0, 0),))
    return Lines(found, stretches, places.copies)


def snapshot_of(folder: WorkFolder, ingest: str) -> Snapshot | None:
    """What the first run that asked for an ingest read of the logs; None where it did not note it."""
    record = next((folder.runs[run].snapshot for run in folder.runs_with(ingest)), None)
    return Snapshot.from_record(record) if record else None


def slice_of(snapshot: Snapshot | None, stretch: Stretch) -> dict[str, Any] | None:
    """The slice of a run's snapshot that holds a stretch: its bytes, lines and SHA-256; None where the run has not read it."""
    for log in snapshot.files if snapshot else ():
        for part in log.slices if log.name == stretch.file else ():
            in_lines = part.line <= stretch.line < max(part.next_line, part.line + 1)
            if in_lines or not log.grows:
                return {"begin": part.begin, "end": part.end, "line": part.line, "sha256": part.sha256}
    return None


def shown(stretches: Iterable[Stretch]) -> str:
    """The places for people: `file:line`, with the first byte where it is known."""
    return ", ".join(f"{one.file}:{one.line}" + (f" (byte {one.offset})" if one.size else "") for one in stretches)
