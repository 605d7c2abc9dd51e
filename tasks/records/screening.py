"""Screening of what a start finds new in its logs, before a run begins on it.

The new slices of a start are a batch. It is ingested, its traces are replayed, and its figures are compared with those of the
batches that were accepted before. A held batch is left out of the snapshot, so the run that begins is the one without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from tasks.engine.reading import begin_run
from tasks.engine.run import Run
from tasks.records.telling import tell_held
from tasks.stages.ingest import ingest_traces
from tracewheel.config import CurateSections
from tracewheel.core import clock
from tracewheel.core.errors import DoubtfulData
from tracewheel.core.store import Entry
from tracewheel.curation.replayed_traces import REPLAYED, replayed_outcomes, selected
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.operations.batch_profile import BatchProfile, Profiler
from tracewheel.operations.batches import ACCEPTED, HELD, RELEASED, Batch, Batches, LogPart
from tracewheel.operations.intake_record import INTAKE_FILE, intake_of, sentences
from tracewheel.operations.screening import reasons, screen
from tracewheel.traces.ingested_folder import QUARANTINE_FILE, TRACES_FOLDER
from tracewheel.traces.quarantine import frequent_reasons
from tracewheel.traces.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow

UNREPLAYED = {"dropped": "", "success": None, "reward_drift": False, "observation_drift": False, "fingerprint": ""}


def parts_of(snapshot: Snapshot) -> list[LogPart]:
    """What a snapshot reads."""
    return [
        LogPart(log.name, part.line, part.next_line if log.grows else None, part.sha256)
        for log in snapshot.files
        for part in log.slices
    ]


def screened(run: Run, *, fresh: bool = False, tell: bool = False) -> Run:
    """The run, or, where its new slices are held, the run without them.

    Args:
        run: The run.
        fresh: Whether it was begun on the logs as they are now, whatever earlier run is incomplete.
        tell: Whether `schedule.notify` is told of a batch that is held: nobody watches the run.

    Raises:
        DoubtfulData: without the batches that are held nothing is left to read.
    """
    batches = Batches(run.config.work_dir)
    known = batches.known()
    new = [part for part in parts_of(run.snapshot) if part.sha256 not in known]
    if new:
        # Before the batch: after a kill between the two, its slices are still slices, and new.
        batches.see(run.snapshot)
        with run.store.exclusive():
            batch = screen_batch(run, batches, new)
        for line in described(batch):
            run.reporter.say(line)
        if batch.state == HELD:
            if tell:
                tell_held(run.config, "; ".join(described(batch)))
            run = begin_run(run.config, run.reporter, run.driver, fresh=fresh)
    if not parts_of(run.snapshot) and (held := [batch for batch in batches.all() if batch.state == HELD]):
        raise DoubtfulData(
            "\n  ".join(
                [
                    f"all that there is to learn from is held ({len(held)} batches); see it with `tracewheel batches CONFIG "
                    "--show ID`, and let it in with --release ID --why TEXT:",
                    *(line for batch in held for line in described(batch)),
                ]
            )
        )
    return run


def screen_batch(run: Run, batches: Batches, new: Sequence[LogPart]) -> Batch:
    """Ingest what a run reads, screen what is new in it, and note the decision."""
    now = clock.now()
    learnt = [batch for batch in batches.all() if batch.state != HELD]
    accepted = [batch.profile for batch in learnt]
    release = max((number for number, batch in enumerate(learnt) if batch.state == RELEASED), default=-1)
    traces = ingest_traces(run, snapshot=run.snapshot)
    profile = profile_of(run, traces, new, accepted, now)
    results = screen(profile, accepted, run.config.screening, len(learnt) - release - 1)
    found = reasons(results)
    state = HELD if found and run.config.screening.hold else ACCEPTED
    why = "; ".join(result.check for result in found) or "nothing found"
    decision = {"state": state, "why": why, "when": now.isoformat(timespec="seconds"), "run": run.record.run_id}
    return batches.add(new, profile, results, decision)


def profile_of(
    run: Run, traces: Entry, new: Sequence[LogPart], accepted: Sequence[BatchProfile], now: datetime
) -> BatchProfile:
    """The figures of the new slices of an ingested folder. What was read before is the sum of the accepted batches.

    The replays are kept in the store, where the run's curation finds them.
    """
    proves = not run.config.environment.kind.startswith(RECORDED)
    profiler, parts, wanted = (
        Profiler(now, proves=proves),
        sorted((traces.path / TRACES_FOLDER).glob("*.parquet")),
        _begin_in(new),
    )
    sections, at = CurateSections.of(run.config), 0
    outcomes = replayed_outcomes(parts, sections, run.store.reuse, run.reporter.say, wanted) if proves else None
    for table in selected(parts, wanted):
        rows = table.to_pandas()
        if outcomes is None:
            rows = rows.assign(**UNREPLAYED)
        else:
            own = outcomes.iloc[at : at + len(rows)]
            rows = rows.assign(**{name: own[name].to_numpy() for name in REPLAYED})
        at += len(rows)
        profiler.add({str(key): value for key, value in row.items()} for row in rows.to_dict("records"))
    with (traces.path / QUARANTINE_FILE).open("rb") as lines:
        for line in lines:
            record = orjson.loads(line)
            if any(part.holds(record["file"], record["line"]) for part in new):
                profiler.quarantine(record)
    found = profiler.profile.kept + profiler.profile.quarantined
    read = max(found, traces.result["read"] - sum(batch.read for batch in accepted))
    return profiler.finish(read, read - found)


def note_intake(run: Run, traces: Entry) -> list[str]:
    """Write down what the run takes in and leaves out; returns it in sentences, none where all is well."""
    reasons = frequent_reasons(traces.result, traces.path / QUARANTINE_FILE)
    examples = {why.reason: f"{why.file}:{why.line}" for why in reasons}
    intake = intake_of(traces.result, examples, Batches(run.config.work_dir))
    run.record.write(INTAKE_FILE, intake)
    return sentences(intake)


def _begin_in(new: Sequence[LogPart]) -> Callable[[pyarrow.Table], list[bool]]:
    """Which traces begin in these slices."""
    by_file = {name: list(found) for name, found in itertools.groupby(sorted(new, key=_file), key=_file)}

    def wanted(traces: pyarrow.Table) -> list[bool]:
        places = zip(traces["source_file"].to_pylist(), traces["source_line"].to_pylist(), strict=True)
        return [any(part.holds(file, line) for part in by_file.get(file, ())) for file, line in places]

    return wanted


def _file(part: LogPart) -> str:
    return part.file


def described(batch: Batch) -> list[str]:
    """A batch in lines for the console."""
    profile = batch.profile
    where = ", ".join(part.shown for part in batch.parts[:3]) + (f" and {len(batch.parts) - 3} more" if batch.parts[3:] else "")
    if batch.state == HELD:
        lines = [f"batch {batch.id} is HELD: {profile.read} new records of {where} are left out"]
        lines += [f"  {result.check}: {result.sentence}{_example(result.examples)}" for result in batch.reasons]
        return [*lines, f"  evidence: tracewheel batches CONFIG --show {batch.id}; let it in: --release {batch.id} --why TEXT"]
    lines = [
        f"batch {batch.id}: {profile.read} new records of {where}, {profile.kept} kept, {profile.quarantined} in quarantine"
    ]
    said = [result for result in batch.results if result.severity in ("held", "said")]
    return lines + [f"  look at {result.check}: {result.sentence}{_example(result.examples)}" for result in said]


def _example(examples: Sequence[dict[str, Any]]) -> str:
    return f" (as {examples[0]['file']}:{examples[0]['line']}: {examples[0]['says']:.160})" if examples else ""
