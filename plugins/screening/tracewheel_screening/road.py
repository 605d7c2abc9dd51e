"""Screening of what a start finds new in its logs, before a run begins on it.

The new slices of a start are a batch. It is ingested, its traces are replayed, and its figures are compared with those of the
batches that were accepted before. A held batch is left out of the snapshot, so the run that begins is the one without it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tracewheel import Batch, CurateSections, Entry, LogPart, Run, ingested, replayed_rows
from tracewheel_screening.batch_profile import BatchProfile, Profiler
from tracewheel_screening.batches import ACCEPTED, HELD, RELEASED, Batches
from tracewheel_screening.checks import reasons, screen
from tracewheel_screening.settings import ScreeningSettings

if TYPE_CHECKING:
    import pyarrow

QUARANTINE_FILE = "quarantine.jsonl"


class Screening:
    """Section `screening` of a profile; without it, its settings are the usual ones.

    Example:
        >>> Screening.Settings(off=["template"]).hold
        True
    """

    Settings = ScreeningSettings

    def screen(self, run: Run, now: datetime) -> list[str]:
        """Screen the new slices of a run as a batch."""
        batches = Batches(run.config.work_dir)
        known = batches.known()
        new = [part for part in parts_of(run) if part.sha256 not in known]
        if not new:
            return []
        # Before the batch: after a kill between the two, its slices are still slices, and new.
        batches.see(run)
        with run.store.exclusive():
            return described(screen_batch(run, batches, new, now))


def parts_of(run: Run) -> list[LogPart]:
    """What a run reads."""
    return [
        LogPart(log.name, part.line, part.next_line if log.grows else None, part.sha256)
        for log in run.snapshot.files
        for part in log.slices
    ]


def screen_batch(run: Run, batches: Batches, new: Sequence[LogPart], now: datetime) -> Batch:
    """Ingest what a run reads, screen what is new in it, and note the decision."""
    settings = ScreeningSettings.model_validate(getattr(run.config, "screening", {}))
    learnt = [batch for batch in batches.all() if batch.state != HELD]
    accepted = [BatchProfile.from_record(batch.profile) for batch in learnt]
    release = max((number for number, batch in enumerate(learnt) if batch.state == RELEASED), default=-1)
    traces = ingested(run)
    profile = profile_of(run, traces, new, accepted, now)
    results = screen(profile, accepted, settings, len(learnt) - release - 1)
    found = reasons(results)
    state = HELD if found and settings.hold else ACCEPTED
    why = "; ".join(result.check for result in found) or "nothing found"
    decision = {"state": state, "why": why, "when": now.isoformat(timespec="seconds"), "run": run.record.run_id}
    return batches.add(new, profile, results, decision)


def profile_of(
    run: Run, traces: Entry, new: Sequence[LogPart], accepted: Sequence[BatchProfile], now: datetime
) -> BatchProfile:
    """The figures of the new slices of an ingested folder. What was read before is the sum of the accepted batches.

    The replays are kept in the store, where the run's curation finds them.
    """
    profiler = Profiler(now)
    sections = CurateSections.of(run.config)
    profiler.add(replayed_rows(traces.path, sections, run.store.reuse, run.reporter.say, _begin_in(new)))
    with (traces.path / QUARANTINE_FILE).open("rb") as lines:
        for line in lines:
            record = json.loads(line)
            if any(_holds(part, record["file"], record["line"]) for part in new):
                profiler.quarantine(record)
    found = profiler.profile.kept + profiler.profile.quarantined
    read = max(found, traces.result["read"] - sum(batch.read for batch in accepted))
    return profiler.finish(read, read - found)


def _begin_in(new: Sequence[LogPart]) -> Callable[[pyarrow.Table], list[bool]]:
    """Which traces begin in these slices."""
    by_file = {name: list(found) for name, found in itertools.groupby(sorted(new, key=_file), key=_file)}

    def wanted(traces: pyarrow.Table) -> list[bool]:
        places = zip(traces["source_file"].to_pylist(), traces["source_line"].to_pylist(), strict=True)
        return [any(_holds(part, file, line) for part in by_file.get(file, ())) for file, line in places]

    return wanted


def _holds(part: LogPart, file: str, line: int) -> bool:
    """Whether a record that begins at this place is in a slice."""
    return file == part.file and line >= part.line and (part.next_line is None or line < part.next_line)


def _file(part: LogPart) -> str:
    return part.file


def described(batch: Batch) -> list[str]:
    """A batch in lines for the console."""
    records, where = batch.records, batch.shown(3)
    if batch.state == HELD:
        lines = [f"batch {batch.id} is HELD: {records['read']} new records of {where} are left out"]
        lines += [f"  {check['check']}: {check['sentence']}{_example(check)}" for check in batch.reasons]
        return [*lines, f"  evidence: tracewheel batches CONFIG --show {batch.id}; let it in: --release {batch.id} --why TEXT"]
    lines = [
        f"batch {batch.id}: {records['read']} new records of {where}, {records['kept']} kept, "
        f"{records['quarantined']} in quarantine"
    ]
    said = [check for check in batch.checks if check["severity"] in ("held", "said")]
    return lines + [f"  look at {check['check']}: {check['sentence']}{_example(check)}" for check in said]


def _example(check: Mapping[str, Any]) -> str:
    examples = check["examples"]
    return f" (as {examples[0]['file']}:{examples[0]['line']}: {examples[0]['says']:.160})" if examples else ""
