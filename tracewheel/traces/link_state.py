"""What an ingest leaves for the one that continues it: its snapshot, its totals, and hashes of what it has stored.

It lies beside the store, not in the entry, so that an entry holds the same bytes whoever made it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.store import PARTIAL, beside, flush, link_file, remove, write_whole
from tracewheel.traces.compression import Slice
from tracewheel.traces.counts import Counts
from tracewheel.traces.ingested_folder import (
    INDEXES,
    OUTCOMES_FILE,
    PLACES_FOLDER,
    QUARANTINE_FILE,
    STATE_FILE,
    TRACES_FOLDER,
    part_name,
)
from tracewheel.traces.intake import StoredHashes
from tracewheel.traces.snapshot import LogSlices, Snapshot

VERSION = 1


@dataclass
class LinkState:
    """The state of an ingest, as far as the next one needs it.

    Attributes:
        totals: Counts of everything it holds.
        known: Hashes of what it has stored.
        parts: How many parts there were.
        sessions: Stored names of the files that are one session each: grown ones are read again as a whole.
        taught: Lines of the records that revealed a secret, by file (`taught.learn_again`).
    """

    totals: Counts = field(default_factory=Counts)
    known: StoredHashes = field(default_factory=StoredHashes)
    parts: int = 0
    sessions: set[str] = field(default_factory=set)
    taught: dict[str, list[int]] = field(default_factory=dict)

    def add_taught(self, taught: Mapping[str, Iterable[int]]) -> None:
        """Note further records that revealed a secret; of a session, all lines."""
        for name, lines in taught.items():
            every = {0} if name in self.sessions else {*lines}
            self.taught[name] = sorted({*self.taught.get(name, ()), *every})

    @classmethod
    def begin(cls, snapshot: Snapshot, out: Path) -> LinkState:
        """The state to continue from, with the earlier ingest's parts and quarantine in `out`; an empty one for the first.

        Raises:
            DataError: the earlier state cannot be read.
        """
        (out / TRACES_FOLDER).mkdir(parents=True, exist_ok=True)
        if snapshot.earlier is None:
            return cls()
        assert snapshot.links and snapshot.links.earlier and snapshot.links.earlier_state
        entry, folder = snapshot.links.earlier, snapshot.links.earlier_state
        for part in sorted((entry / TRACES_FOLDER).glob("part-*.parquet")):
            link_file(part, out / TRACES_FOLDER / part.name)
        for name in (QUARANTINE_FILE, OUTCOMES_FILE):
            if (entry / name).is_file():
                shutil.copyfile(entry / name, out / name)
        stored = read_state(folder)
        if stored is None:
            raise DataError(f"{folder}: is damaged; delete it, and the next run ingests everything anew")
        known = StoredHashes.load(folder)
        return cls(Counts.of_report(stored["totals"]), known, stored["parts"], set(stored["sessions"]), stored["taught"])

    def plan(self, log: LogSlices) -> tuple[tuple[Slice, ...], int]:
        """What to read of a file, and of a session that is read again the bytes that were read before."""
        tail = (log.tail,) if log.tail else ()
        if log.name not in self.sessions:
            return (*log.new, *tail), 0
        # Its lines link to one another: it waits for what is left out of it.
        return ((), 0) if log.held or not log.new else ((*log.slices, *tail), log.new[0].begin)

    def next_part(self, out: Path) -> Path:
        """The part to write."""
        return out / TRACES_FOLDER / part_name(self.parts)

    def save(self, snapshot: Snapshot, name: Callable[[str], str]) -> None:
        """Leave the state for the next ingest, if the snapshot says where.

        Args:
            snapshot: What was read.
            name: The name of a file as it is stored: a record may have revealed a secret that is in it.
        """
        if snapshot.links is None:
            return
        snapshot = snapshot.renamed(name)
        assert snapshot.links
        write_whole(snapshot.links.last, json.dumps(snapshot.to_record(), indent=1) + "\n")
        folder = snapshot.links.state
        made = folder.with_name(f"{PARTIAL}{folder.name}-{os.getpid()}")
        remove(made)
        made.mkdir(parents=True)
        self.known.save(made)
        record = {
            "version": VERSION,
            "totals": self.totals.report(),
            "parts": self.parts,
            "sessions": sorted(map(name, self.sessions)),
            "taught": {name(file): lines for file, lines in self.taught.items()},
            "snapshot": snapshot.to_record(),
        }
        (made / STATE_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        flush(made)
        remove(folder)
        os.replace(made, folder)


def earlier_places(snapshot: Snapshot, notes: Path) -> Path:
    """The folder for the places of an ingest's traces, with those of the ingest that it continues, which may have none."""
    folder = notes / PLACES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if snapshot.earlier and snapshot.links and snapshot.links.earlier:
        entry = snapshot.links.earlier
        for notes in (entry, beside(entry.parent, entry.name)):
            for part in sorted((notes / PLACES_FOLDER).glob("part-*.parquet")):
                link_file(part, folder / part.name)
    return folder


def read_state(folder: Path) -> dict[str, Any] | None:
    """The record that an ingest left; None if there is none, or of another version."""
    try:
        record = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        whole = record["version"] == VERSION and all((folder / f"{name}.hashes").is_file() for name in INDEXES)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None
