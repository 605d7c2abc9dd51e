"""Whether a scheduled run starts, and the journal of these decisions.

`work_dir/decisions.jsonl` has a line for each decision, the newest last: `at` (UTC), `run`, `starts`, `why`, `ticks` and `last`
(how often, and when last, the same answer was given because nothing was new), and the figures behind it. It keeps the
newest `MOST_LINES`. A run that starts has its decision in `decision.json` of its record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.records.drift_looks import look_for_drift, remember_look
from tasks.records.gate_ledger import read_ledger
from tasks.records.split_chain import latest_curation
from tasks.records.worth import DECISION_FILE, describe, weigh_worth
from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.locks import hold_beside
from tracewheel.core.run_record import LOOP_FILE, SUMMARY_FILE
from tracewheel.core.store import Entry, remove, write_whole
from tracewheel.operations.batches import Batches
from tracewheel.operations.evidence import NewEvidence, new_evidence

JOURNAL_FILE = "decisions.jsonl"
MOST_LINES = 1000
BY_HAND = "started by hand"


@dataclass(frozen=True)
class Decision:
    """Whether a run starts, why in words with numbers, and the figures: `evidence`, and others as JSON types."""

    starts: bool
    why: str
    figures: dict[str, Any] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """As JSON types."""
        figures = {name: value.to_record() if isinstance(value, NewEvidence) else value for name, value in self.figures.items()}
        return {"starts": self.starts, "why": self.why, **figures}


RESUMED = Decision(True, "it has begun, and is resumed")


def nothing_new(run: Run, now: datetime | None = None) -> str | None:
    """Why a scheduled run need not even read its logs: they are those of a complete run, or of the last decision.

    Args:
        run: The run.
        now: The present, by default.
    """
    waiting = "".join(f"; {says}" for says in held_words(run.config.work_dir))
    if run.record.summary:
        return f"no new traces since run {run.record.run_id}, which is complete{waiting}"
    last = last_decision(run.config.work_dir)
    if not last or last["starts"] or last["run"] != run.record.run_id or last.get("schedule") != _schedule(run) or _begun(run):
        return None
    now = now or clock.now()
    if _too_old(run, _days_since(last.get("champion_since"), now)):
        return None
    return f"nothing new since the decision of {last['at']}: {last['why']}{waiting}"


def note_tick(work_dir: str) -> None:
    """Note that the last decision was given once more, because nothing was new."""
    if (last := last_decision(work_dir)) is not None:
        note(work_dir, last | {"ticks": last["ticks"] + 1, "last": _written(clock.now())}, replaces=last)


def held_words(work_dir: str) -> list[str]:
    """What is held until a person decides, a sentence for each batch with the command that lets it in."""
    return [
        f"batch {batch.id} of {batch.profile.read} records is held ({', '.join(result.check for result in batch.reasons)}): see"
        f" it with `tracewheel batches CONFIG --show {batch.id}`, let it in with --release {batch.id} --why TEXT"
        for batch in Batches(work_dir).all()
        if batch.waits
    ]


def decide(run: Run, curated: Entry, start: dict[str, Any], *, asked: bool) -> Decision:
    """Whether the run starts. The answer is kept: a run that has started is not asked again.

    Args:
        run: The run.
        curated: The tasks that it would learn from.
        start: Its `start.json`: the champion, and the tasks' posterior.
        asked: Nobody waits for the run; one that was started by hand starts.
    """
    if _begun(run):
        return RESUMED
    present = clock.now()
    decision = weigh(run, curated, start, present) if asked else Decision(True, BY_HAND, figures_of(run, curated, start))
    if asked:
        remember_look(run.config.work_dir, decision.figures.get("drift", {}), present)
        now = _written(present)
        line = {"at": now, "run": run.record.run_id, "ticks": 1, "last": now, "schedule": _schedule(run)}
        note(run.config.work_dir, line | decision.to_record())
    if decision.starts:
        run.record.write(DECISION_FILE, decision.to_record())
    else:
        remove(run.record.path)  # otherwise it would be an incomplete run, to be resumed
    return decision


def foresee(run: Run, curated: Entry | None, start: dict[str, Any]) -> dict[str, Any] | None:
    """What a scheduled run would decide now, for the plan of a profile with `schedule`; None for another.

    Returns:
        `starts`, which is None while the traces are not taken in and curated yet, `why`, and the figures.
    """
    if "schedule" not in run.config.model_fields_set:
        return None
    if reason := nothing_new(run):
        return {"starts": False, "why": reason}
    if curated is None:
        return {"starts": None, "why": "not known before the new traces are taken in and curated, which a scheduled run does"}
    if _begun(run):
        return RESUMED.to_record()
    return weigh(run, curated, start, clock.now()).to_record()


def weigh(run: Run, curated: Entry, start: dict[str, Any], now: datetime) -> Decision:
    """Whether there is enough new evidence, a drift or an old champion since the last complete run, and it is worth it."""
    last, earlier = latest_curation(run)
    figures = figures_of(run, curated, start)
    if last is None:
        return Decision(True, "the first run of this work folder", figures)
    if earlier is None:
        return Decision(True, f"what run {last} learnt from is no longer in the store", figures)
    drift = look_for_drift(run, curated.path, last, earlier.path, now)
    evidence, worth, days = figures["evidence"], figures["worth"], _days_since(figures["champion_since"], now)
    wanted = run.config.schedule.min_new_tasks
    enough = evidence.counted >= wanted or drift["found"] or _too_old(run, days)
    says = [f"{evidence.says(wanted)} since run {last}", drift["says"], *_age(run, days), *_full(run, evidence)]
    starts, value = describe(worth, run.config.schedule.min_expected_gain) if enough else (False, ())
    return Decision(starts, ", ".join([*says, *value]), figures | {"drift": drift})


def figures_of(run: Run, curated: Entry, start: dict[str, Any]) -> dict[str, Any]:
    """New evidence since the last complete run, the worth of a run, and since when the champion is one."""
    last, earlier = latest_curation(run)
    evidence = new_evidence(curated.path, earlier.path if earlier else None)
    return {
        "evidence": evidence,
        "since_run": last,
        "champion_since": champion_since(run.config.work_dir, start["champion"]),
        "worth": weigh_worth(run, curated, start["sampler"], evidence.counted),
    }


def _age(run: Run, days: float | None) -> list[str]:
    limit = run.config.schedule.max_champion_days
    return [] if days is None else [f"champion {days:.0f} days old" + (f" (limit {limit:g})" if limit else "")]


def _full(run: Run, evidence: NewEvidence) -> list[str]:
    """Where new tasks find no place, because full sets do not turn over, which setting makes room."""
    full, wanted = run.config.curation.train_tasks, run.config.schedule.min_new_tasks
    short = evidence.train_tasks >= full and evidence.new_tasks < wanted and not run.config.curation.recent_share
    return [f"the training set is full: curation.train_tasks is {full}"] if short else []


def champion_since(work_dir: str, champion: dict[str, Any] | None) -> str | None:
    """When the champion was promoted: when its gate began. None without one, or where it is of another work folder."""
    gates = [gate for gate in read_ledger(work_dir) if champion and gate["run"] == champion.get("run_id")]
    return str(gates[-1]["began"]) if gates else None


def last_decision(work_dir: str) -> dict[str, Any] | None:
    """The newest line of the journal; None without one."""
    lines = _read(Path(work_dir) / JOURNAL_FILE)
    return lines[-1] if lines else None


def note(work_dir: str, line: dict[str, Any], replaces: dict[str, Any] | None = None) -> None:
    """Add a line to the journal, in place of the last one where that is `replaces`."""
    path = Path(work_dir) / JOURNAL_FILE
    with hold_beside(path):
        lines = _read(path)
        if replaces is not None and lines and lines[-1] == replaces:
            lines.pop()
        kept = [*lines, line][-MOST_LINES:]
        write_whole(path, "".join(json.dumps(one) + "\n" for one in kept))


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError as error:
        raise DataError(f"{path}: not lines of JSON ({error}); delete it, and only the journal of decisions is lost") from error
    if not all(isinstance(line, dict) and {"at", "run", "starts", "why", "ticks"} <= line.keys() for line in lines):
        raise DataError(f"{path}: not decisions with at, run, starts, why and ticks; delete it, and only the journal is lost")
    return lines


def _begun(run: Run) -> bool:
    return any((run.record.path / name).is_file() for name in (DECISION_FILE, LOOP_FILE, SUMMARY_FILE))


def _schedule(run: Run) -> dict[str, Any]:
    return run.config.schedule.model_dump(mode="json")


def _too_old(run: Run, days: float | None) -> bool:
    limit = run.config.schedule.max_champion_days
    return limit is not None and days is not None and days > limit


def _days_since(since: str | None, now: datetime) -> float | None:
    return (now - datetime.fromisoformat(since)) / timedelta(days=1) if since else None


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
