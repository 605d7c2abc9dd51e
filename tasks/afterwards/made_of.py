"""What a work folder made of some traces: the runs that read them, their adapters, records and stored results; taking it out.

The order makes a kill harmless: `keep_out` comes first, `delete_entries` last, for the store's ingests tell what is theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.engine.reading import CHAIN_FILE, FOLDER
from tasks.records.gate_ledger import CANDIDATE, end, entries_of, waiting_candidate
from tasks.tracking.champion import CHAMPION_FOLDER, known_champion, remember_champion
from tracewheel.core.run_record import RunRecord, find_runs
from tracewheel.core.store import FACTS, Store, beside, remove
from tracewheel.curation.curated_folder import SPLITS_FILE
from tracewheel.curation.split_record import identity_key
from tracewheel.dashboard.digests import FOLDER as DASHBOARD
from tracewheel.lineage import forward
from tracewheel.lineage.backward import LEARNED_FILE
from tracewheel.lineage.work_folder import WorkFolder
from tracewheel.policy.adapters import ADAPTER, MODEL, digests_of
from tracewheel.traces.forgotten import LEARNT, hash_of_identity, hash_of_record, read_forgotten
from tracewheel.traces.snapshot import Snapshot


@dataclass(frozen=True)
class MadeRun:
    """A run that has read something of theirs.

    Attributes:
        record: The run.
        splits: Those that tasks of their traces are in, as far as its curation is in the store.
        entries: What it asked for of the store.
        learnt: Whether its adapter learnt from them, itself or through the champion that it began with; also where neither the
            store nor the run's record can tell.
        adapters: Digests of these adapters: of the one that it ended with, and of those in the store.
    """

    record: RunRecord
    splits: frozenset[str]
    entries: frozenset[str]
    learnt: bool
    adapters: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Made:
    """What a work folder made of traces. Only `hold` makes sure that no run makes more of it meanwhile.

    Attributes:
        work_dir: The folder.
        who: Users, sessions and traces, by their names in the logs or in the stored traces, as `kind, name`.
        traces: Ids of their stored traces.
        ingests: Entries of ingests that hold something of theirs.
        runs: The runs that read it, latest first.
    """

    work_dir: Path
    who: frozenset[tuple[str, str]]
    traces: frozenset[str]
    ingests: frozenset[str]
    runs: tuple[MadeRun, ...]

    @property
    def hashes(self) -> frozenset[str]:
        """What `forgotten.json` lists of their names."""
        return frozenset(hash_of_identity(kind, name) for kind, name in self.who)

    @property
    def adapters(self) -> frozenset[str]:
        """Digests of the adapters that learnt from them."""
        return frozenset[str]().union(*(run.adapters for run in self.runs))

    def hold(self) -> AbstractContextManager[None]:
        """Hold the store.

        Raises:
            InfrastructureError: a run holds it.
        """
        return Store(self.work_dir / "store").exclusive()

    def keep_out(self, named: Iterable[tuple[str, str]] = (), records: Iterable[dict[str, Any]] = ()) -> None:
        """List them, and the adapters, in `forgotten.json`: no later ingest reads them.

        Args:
            named: Further names, as `kind, name`.
            records: Records in quarantine.
        """
        further = (*(hash_of_identity(kind, name) for kind, name in named), *map(hash_of_record, records))
        read_forgotten(self.work_dir).adding((*self.hashes, *further), self.adapters).write(self.work_dir)
        remove(self.work_dir / DASHBOARD)

    def clean_records(self, sessions: Iterable[str] = (), *, weights: bool = False) -> list[Path]:
        """Take them out of the runs' pages and tables, and out of what is known of the champion; returns the files.

        Keys of tasks in the record of splits stay: a copy that comes back must not change its side.

        Args:
            sessions: Further sessions of theirs.
            weights: Whether copies of adapters that learnt from them go, too.
        """
        changed = []
        named = {*self.who, *(("session", name) for name in sessions)}
        keys = [identity_key(kind, name) for kind, name in named if kind != "trace"]
        for run in self.runs:
            for page in run.record.path.glob("*.html"):  # its episodes' tokens are theirs, however they are written
                remove(page)
                changed.append(page)
            for name in (ADAPTER, MODEL) if weights and run.learnt else ():
                remove(run.record.path / name)
            for name, column, values in ((SPLITS_FILE, "key", keys), (LEARNED_FILE, "trace_id", self.traces)):
                if (kept := run.record.path / name).is_file() and _drop_rows(kept, column, values):
                    changed.append(kept)
        learnt = {run.record.run_id for run in self.runs if run.learnt}
        known = known_champion(self.work_dir)
        if known is not None and (known["run_id"] in learnt or known["digest"] in self.adapters):
            remember_champion(self.work_dir, None)
            remove(self.work_dir / CHAMPION_FOLDER)
        return changed

    def delete_entries(self, holding: Iterable[Path] = ()) -> int:
        """Delete every stored result that comes from them, and what later runs would continue; returns how many.

        Args:
            holding: Files that hold something of theirs; the entries that these lie in go, too.
        """
        store = self.work_dir / "store"
        readers = {run.record.run_id for run in self.runs}
        others: set[str] = set()
        for record in find_runs(self.work_dir):
            others |= set() if record.run_id in readers else record.needs() or set()
        inside = (path.relative_to(store).parts[0] for path in holding if store in path.parents)
        names = {name for run in self.runs for name in run.entries} - others
        names |= {name for name in inside if not name.startswith(".")} | self.ingests
        for place in (Store(store).reuse, self.work_dir / FOLDER, self.work_dir / CHAIN_FILE):
            remove(place)
        for name in sorted(names, key=lambda name: (name in self.ingests, name)):
            remove(store / FACTS / f"{name}.json")
            remove(beside(store, name))
            remove(store / name)
        remove(self.work_dir / DASHBOARD)  # one that is open may have begun to read what was still there
        return len(names)

    def end_candidate(self) -> str | None:
        """End the wait of a candidate that learnt from them, or whose evidence is no longer in the store; returns why."""
        if (line := waiting_candidate(str(self.work_dir))) is None:
            return None
        if line[CANDIDATE]["digest"] in read_forgotten(self.work_dir).adapters:
            why = f"it {LEARNT}"
        elif any(not (self.work_dir / "store" / name).is_dir() for name in entries_of(line)):
            why = "its evidence is on tasks of somebody who was forgotten since"
        else:
            return None
        end(str(self.work_dir), line["evidence"], why)
        return f"candidate of run {line['run']}: {why}"


def made_of(
    work_dir: Path,
    who: Collection[tuple[str, str]],
    *,
    traces: Collection[str] = (),
    ingests: Collection[str] = (),
    places: Collection[tuple[str, int]] = (),
) -> Made:
    """What a work folder made of traces: by the lineage of the store's entries, and by the runs' snapshots.

    Args:
        work_dir: The folder.
        who: Users, sessions and traces, as `kind, name`, by their names in the logs or in the stored traces.
        traces: Ids of their stored traces.
        ingests: Entries of ingests that hold something of theirs, if only in quarantine.
        places: File and line of each of their records in the logs.
    """
    made = Made(work_dir, frozenset(who), frozenset(traces), frozenset(ingests), ())
    if not any(folder.is_dir() for folder in (work_dir / "store", *work_dir.glob("*/"))):
        return made
    folder = WorkFolder(work_dir)
    named = {kind: {name for one, name in who if one == kind} for kind in forward.WHAT}
    named["trace"].update(traces)
    found = [forward.affected(folder, kind, names) for kind, names in named.items() if names]
    runs = []
    for run_id, record in folder.runs.items():
        of_run = [holds.runs[run_id] for holds in found if run_id in holds.runs]
        entries = frozenset(record.needs() or ())
        if not (of_run or entries & made.ingests or _covers(record, places, made.hashes)):
            continue
        held = [holds.holds[name] for holds in found for name in entries if name in holds.holds]
        known = (record.path / LEARNED_FILE).is_file() or any((folder.store / name).is_dir() for name in entries)
        learnt = not known or any(run.adapter for run in of_run) or any(hold.adapter for hold in held)
        own = [record.path / kind for kind in (ADAPTER, MODEL) if learnt and (record.path / kind).is_dir()]
        digests = [*(hold.adapter for hold in held), *map(digests_of, own)]
        splits = frozenset(split for hold in held for split in hold.splits)
        runs.append(MadeRun(record, splits, entries, learnt, frozenset(one for of in digests for one in of.values())))
    return Made(work_dir, made.who, made.traces, made.ingests, tuple(runs))


def _covers(record: RunRecord, places: Iterable[tuple[str, int]], hashes: frozenset[str]) -> bool:
    """Whether a run read one of these lines: its snapshot has them, and it did not leave them out."""
    if record.snapshot is None:
        return False
    snapshot = Snapshot.from_record(record.snapshot)
    if hashes <= snapshot.forgotten.hashes:
        return False
    parts = {log.name: [(part.line, part.next_line) for part in log.slices] for log in snapshot.files}
    return any(begin <= line < max(end, begin + 1) for file, line in places for begin, end in parts.get(file, ()))


def _drop_rows(path: Path, column: str, values: Collection[str]) -> int:
    """Delete the rows of a Parquet file whose column has one of the values; schema and metadata stay. Returns how many."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    kept = table.filter(pyarrow.compute.invert(pyarrow.compute.is_in(table[column], pyarrow.array(sorted(values), "string"))))
    if kept.num_rows < table.num_rows:
        partial = path.with_name(f".{path.name}")
        pyarrow.parquet.write_table(kept, partial)
        partial.replace(path)
    return int(table.num_rows - kept.num_rows)
