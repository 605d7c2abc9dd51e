"""What of a work folder is still needed, and freeing the rest.

Kept are the entries of the last complete runs, of the champion's run, and of runs since then that may be resumed; what the
next run begins with (the candidate that waits, `evidence.json`, `splits.json` and other files of the work folder name entries);
and whatever cannot be told. Records of runs stay, only the copies of weights in those that are not kept go.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.records.evidence import last_curated
from tasks.records.gate_ledger import LEDGER_FILE, waiting_candidate
from tasks.records.split_chain import latest_record
from tasks.tracking.registry import find_champion
from tasks.tracking.tracking import waiting_runs
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import InfrastructureError, TracewheelError
from tracewheel.core.files import read_json
from tracewheel.core.housekeeping import Freeable, bytes_in, entries_of, free, freeable
from tracewheel.core.run_record import SUMMARY_FILE, RunRecord, find_runs
from tracewheel.core.store import Store
from tracewheel.operations.approval import approval_of
from tracewheel.policy.adapters import ADAPTER, MODEL

WEIGHTS = "weights of old runs"


@dataclass(frozen=True)
class Needed:
    """What is kept.

    Attributes:
        runs: Run to the reason why its entries are kept.
        entries: Names of the store's entries.
        note: What is known of the champion.
    """

    runs: dict[str, str]
    entries: set[str]
    note: str


def needed(config: RetrainConfig, keep: int) -> Needed:
    """What the champion, resumable runs, the next run and the last complete runs need.

    Args:
        config: The profile.
        keep: How many complete runs to keep, the latest first.

    Raises:
        DataError: a file that says what is needed is damaged.
    """
    work_dir = Path(config.work_dir)
    runs = find_runs(work_dir)
    reasons, note = _kept_runs(config, runs, keep)
    known = entries_of(work_dir / "store")
    entries = {name for record in runs if record.run_id in reasons for name in _entries_of_run(record, known)}
    for folder in sorted((work_dir / "loops").glob("*")):  # of `tracewheel stage improve`; as late as the runs that are kept
        if _is_late(folder, [record for record in runs if record.run_id in reasons]):
            entries |= RunRecord(folder.parent, folder.name).needs() or set()
    entries |= {name for name in (last_curated(work_dir), latest_record(work_dir)) if name}
    entries |= set(_named_in_files(work_dir, known))
    return Needed(reasons, entries & set(known), note)


def look(config: RetrainConfig, keep: int, also: Collection[str] = ()) -> tuple[Needed, Freeable]:
    """What is kept, and what can be freed; nothing is changed."""
    work_dir, kept = Path(config.work_dir), needed(config, keep)
    kept.entries.update(also)
    return kept, freeable(work_dir / "store", kept.entries, _old_weights(work_dir, kept.runs))


def keep_house(config: RetrainConfig, keep: int, *, yes: bool) -> dict[str, Any]:
    """Free what is not needed, with `yes`; without, only say what that would be.

    Raises:
        InfrastructureError: a run holds the store.
        DataError: a file that says what is needed is damaged.
    """
    if not yes:
        return _record(config, *look(config, keep), freed=False)
    with Store(Path(config.work_dir) / "store").exclusive():
        return free_held(config, keep)


def keep_house_after(run: Run) -> None:
    """Free what is not needed after a run that holds the store; what it used is kept. It does not fail for it."""
    keep = run.config.schedule.keep_runs
    if keep is None:
        return
    try:
        freed = free_held(run.config, keep, also={entry.path.name for entry in run.used})
    except TracewheelError as error:
        run.reporter.say(f"housekeeping: nothing was freed ({error}); `tracewheel runs gc` does it by hand")
        return
    if freed["bytes"]:
        megabytes, entries = f"{freed['bytes'] / 1e6:.1f} MB", f"{freed['entries']} entries"
        run.reporter.say(f"housekeeping: freed {megabytes}, {entries} (schedule.keep_runs: {keep})")


def free_held(config: RetrainConfig, keep: int, also: Collection[str] = ()) -> dict[str, Any]:
    """Free what is not needed, for a caller that holds the store; `also` names further entries to keep."""
    kept, found = look(config, keep, also)
    free(found)
    return _record(config, kept, found, freed=True)


def _record(config: RetrainConfig, kept: Needed, found: Freeable, *, freed: bool) -> dict[str, Any]:
    store = Path(config.work_dir) / "store"
    left = bytes_in(store) - (0 if freed else sum(size for kind, size in found.sizes.items() if kind != WEIGHTS))
    return {
        "work_dir": config.work_dir,
        "freed": freed,
        **found.to_record(),
        "kept": {"runs": kept.runs, "entries": len(kept.entries), "store_bytes": left},
        "champion": kept.note,
    }


def _kept_runs(config: RetrainConfig, runs: list[RunRecord], keep: int) -> tuple[dict[str, str], str]:
    """Run to the reason why it is kept, and what is known of the champion."""
    summaries = {record.run_id: record.summary for record in runs}
    complete = [record for record in runs if summaries[record.run_id]]
    reasons = {record.run_id: f"one of the last {keep} complete runs" for record in complete[:keep]}
    oldest = min((str(record.lineage["started"]) for record in complete[:keep]), default="")
    for record in runs:
        if summaries[record.run_id] is None and str(record.lineage["started"]) >= oldest:
            reasons[record.run_id] = "not complete: it may be running, or be resumed"
    for record in runs:
        if (approval := approval_of(record.path)) and not approval.outcome:
            reasons[record.run_id] = "its promotion waits for approval"
    reasons |= {record.run_id: "MLflow does not have all of it" for record in waiting_runs(config.work_dir)}
    try:
        champion, note = find_champion(config, certain=True)
    except InfrastructureError as error:
        champion, note = None, f"the champion is not known ({error})"
    if champion:
        crowned = {champion.run_id}
    else:
        crowned = {run_id for run_id, summary in summaries.items() if summary and summary["gate"]["verdict"] == "promoted"}
        note += "; every promoted run is kept" if crowned else ""
    reasons |= {record.run_id: "champion" for record in runs if record.run_id in crowned}
    return reasons, note


def _entries_of_run(record: RunRecord, known: dict[str, float | None]) -> set[str]:
    """Names of the entries that a run needs. Runs of earlier versions noted none: all that were there when it ended."""
    start = record.started() or {}
    began = {str(name) for name in (start.get("evidence"), (start.get("splits") or {}).get("curated")) if name}
    noted = record.needs()
    if noted is not None:
        return noted | began
    summary = record.path / SUMMARY_FILE
    ended = summary.stat().st_mtime if summary.is_file() else time.time()
    return began | {name for name, finished in known.items() if finished is None or finished <= ended}


def _is_late(folder: Path, kept: list[RunRecord]) -> bool:
    """Whether a folder was changed since the earliest of these runs began, or there are none."""
    earliest = min((record.path.stat().st_ctime for record in kept), default=0.0)
    return max(file.stat().st_mtime for file in [folder, *folder.iterdir()]) >= earliest


def _named_in_files(work_dir: Path, known: dict[str, float | None]) -> Iterator[str]:
    """Entries that the work folder's other files name, whatever they are for."""
    yield from (text for text in _texts(waiting_candidate(str(work_dir))) if text in known)
    listed = {"evidence.json", "splits.json", LEDGER_FILE}  # they name every run; what is needed of them is known
    for file in sorted(work_dir.glob("*.json")):
        if file.name not in listed:
            yield from (text for text in _texts(read_json(file)) if text in known)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _old_weights(work_dir: Path, kept: dict[str, str]) -> list[tuple[Path, str]]:
    """The weights' copies in the records of complete runs that are not kept; MLflow has what was registered."""
    old = [record for record in find_runs(work_dir) if record.run_id not in kept and record.summary]
    return [(record.path / name, WEIGHTS) for record in old for name in (ADAPTER, MODEL) if (record.path / name).is_dir()]
