"""Whether a scheduled run starts, and the journal of these decisions.

`work_dir/decisions.jsonl` has a line for each decision, the newest last: `at` (UTC), `run`, `starts`, `why`, `ticks` and `last`
(how often, and when last, the same answer was given because nothing was new), and the figures behind it. It keeps the
newest `MOST_LINES`. A run that starts has its decision in `decision.json` of its record.

`work_dir/drift_looks.json` lists the looks at drift, the oldest first: `evidence` (a hash of the compared traces), `since` (the
run that is compared with), `attempts` (new ones), `began` (UTC), `level`, `says` and `found`. A look is made when the new
attempts have grown by a quarter since the last one, or that is two days ago, so that ticks every few minutes do not use up the
year's error. The levels of any 365 days sum to at most `DRIFT_LEVEL`, as those of the gates do (`evaluation.error_budget`), and
the union bound holds whatever the dependence. The same evidence is the same look.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.records.gate_ledger import CANDIDATE, YEAR, place_in, read_ledger
from tasks.records.split_chain import latest_curation
from tracewheel.config import GateConfig
from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold_beside
from tracewheel.core.run_record import LOOP_FILE, SUMMARY_FILE
from tracewheel.core.store import Entry, remove, write_whole
from tracewheel.core.types import content_hash
from tracewheel.evaluation.error_budget import level_of
from tracewheel.operations.batches import held_batches
from tracewheel.operations.drift import curated_attempts, find_drift
from tracewheel.operations.evidence import NewEvidence, new_evidence

JOURNAL_FILE, DECISION_FILE = "decisions.jsonl", "decision.json"
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


def nothing_new(run: Run) -> str | None:
    """Why a scheduled run need not even read its logs: they are those of a complete run, or of the last decision."""
    waiting = "".join(f"; {says}" for says in held_words(run.config.work_dir))
    if run.record.summary:
        return f"no new traces since run {run.record.run_id}, which is complete{waiting}"
    last = last_decision(run.config.work_dir)
    if not last or last["starts"] or last["run"] != run.record.run_id or last.get("schedule") != _schedule(run) or _begun(run):
        return None
    if _too_old(run, _days_since(last.get("champion_since"), clock.now())):
        return None
    return f"nothing new since the decision of {last['at']}: {last['why']}{waiting}"


def note_tick(work_dir: str) -> None:
    """Note that the last decision was given once more, because nothing was new."""
    if (last := last_decision(work_dir)) is not None:
        note(work_dir, last | {"ticks": last["ticks"] + 1, "last": clock.written()}, replaces=last)


def held_words(work_dir: str) -> list[str]:
    """What is held until a person decides, a sentence for each batch with the command that lets it in."""
    return [
        f"batch {batch.id} of {batch.records['read']} records is held ({', '.join(it['check'] for it in batch.reasons)}): see"
        f" it with `tracewheel batches CONFIG --show {batch.id}`, let it in with --release {batch.id} --why TEXT"
        for batch in held_batches(work_dir)
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
        now = present.isoformat(timespec="seconds")
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
    """Whether there is enough new evidence, a drift or an old champion since the last complete run."""
    last, earlier = latest_curation(run)
    figures = figures_of(run, curated, start)
    if last is None:
        return Decision(True, "the first run of this work folder", figures)
    if earlier is None:
        return Decision(True, f"what run {last} learnt from is no longer in the store", figures)
    drift = look_for_drift(run, curated.path, last, earlier.path, now)
    evidence, days = figures["evidence"], _days_since(figures["champion_since"], now)
    wanted = run.config.schedule.min_new_tasks
    enough = evidence.counted >= wanted or drift["found"] or _too_old(run, days)
    says = [f"{evidence.says(wanted)} since run {last}", drift["says"], *_age(run, days), *_full(run, evidence)]
    return Decision(bool(enough), ", ".join(says), figures | {"drift": drift})


def figures_of(run: Run, curated: Entry, start: dict[str, Any]) -> dict[str, Any]:
    """New evidence since the last complete run, and since when the champion is one."""
    last, earlier = latest_curation(run)
    evidence = new_evidence(curated.path, earlier.path if earlier else None)
    champion = champion_since(run.config.work_dir, start["champion"])
    return {"evidence": evidence, "since_run": last, "champion_since": champion}


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
    run_id = (champion or {}).get("run_id")
    lines = read_ledger(work_dir)
    nights = [night["at"] for line in lines for night in line.get(CANDIDATE, {}).get("nights", ()) if night["run"] == run_id]
    gates = [*(line["began"] for line in lines if champion and line["run"] == run_id), *nights]
    return str(gates[-1]) if gates else None


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


LOOKS_FILE = "drift_looks.json"
FIELDS = {"evidence", "since", "attempts", "began", "level", "says", "found"}
LEAST, GROWTH, AT_LATEST = 5, 1.25, timedelta(days=2)
DRIFT_LEVEL = 0.1
LOOKS_A_YEAR = 200  # about those of a run each ten days, with logs that arrive every night


def look_for_drift(run: Run, curated: Path, since: str, earlier: Path, now: datetime) -> dict[str, Any]:
    """Look for drift since the last complete run, or repeat what the last look said while little is new.

    Args:
        run: The run.
        curated: Its curation.
        since: The last complete run, and `earlier` its curation.
        now: The present.

    Returns:
        `found`, `says` and, once there was a look, its other fields.
    """
    before, attempts = curated_attempts(earlier), curated_attempts(curated)
    after = attempts[~attempts["trace_id"].isin(before["trace_id"])]
    looks = read_looks(run.config.work_dir)
    evidence = content_hash([since, sorted(after["trace_id"])])
    known = next((look for look in looks if look["evidence"] == evidence), None)
    ours = [look for look in looks if look["since"] == since]
    wanted = max(LEAST, math.ceil(GROWTH * ours[-1]["attempts"])) if ours else LEAST
    if ours and now - datetime.fromisoformat(ours[-1]["began"]) >= AT_LATEST:
        wanted = min(wanted, ours[-1]["attempts"] + 1)
    if known is None and len(after) < wanted:
        if not ours:
            return {"found": False, "says": f"{len(after)} new attempts are too few to show a drift (needs {LEAST})"}
        again = f"at {ours[-1]['attempts']} new attempts, tested again at {wanted} or after two days"
        return ours[-1] | {"says": f"{ours[-1]['says']} {again}"}
    config = GateConfig(confidence=1.0 - 2.0 * DRIFT_LEVEL, gates_per_year=LOOKS_A_YEAR)
    level = level_of(config, place_in(looks, evidence, now, config))
    drift = find_drift(before, after, level)
    return {
        "evidence": evidence,
        "since": since,
        "attempts": len(after),
        "began": known["began"] if known else now.isoformat(timespec="seconds"),
        "level": level,
        "says": drift.says(),
        "found": drift.found,
    }


def remember_look(work_dir: str, look: Mapping[str, Any], now: datetime) -> None:
    """Note a look of `look_for_drift`, unless it is an earlier one again, or none."""
    looks = read_looks(work_dir)
    if not look.keys() >= FIELDS or any(one["evidence"] == look["evidence"] for one in looks):
        return
    kept = [one for one in looks if datetime.fromisoformat(one["began"]) > now - YEAR]
    write_whole(Path(work_dir) / LOOKS_FILE, json.dumps([*kept, look], indent=2) + "\n")


def read_looks(work_dir: str) -> list[dict[str, Any]]:
    """The looks of a work folder.

    Raises:
        DataError: the file is not what a run wrote.
    """
    path = Path(work_dir) / LOOKS_FILE
    looks = read_json(path) if path.is_file() else []
    if not isinstance(looks, list) or not all(isinstance(look, dict) and look.keys() >= FIELDS for look in looks):
        raise DataError(f"{path}: not a list of looks with {', '.join(sorted(FIELDS))}; delete it to begin a new year of looks")
    return looks
