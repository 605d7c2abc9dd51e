"""What a scheduled run of the past came to, read from the records that it left in its work folder.

`ticks.json` of a branch lists the ticks that are over, the oldest first. `tick.json` is the one that has begun: its moment, and
the runs that were complete before it, so that after a kill the same tick comes to the same record.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tasks.engine.reading import FOLDER as INGESTED
from tasks.engine.run import Run
from tasks.records.decisions import last_decision
from tasks.stages.champion import load_champion
from tasks.tracking.champion import known_champion
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.run_record import LOOP_FILE, RunRecord, find_runs
from tracewheel.core.store import PARTIAL, link, remove, write_whole
from tracewheel.operations.batches import HELD, Batches

TICKS_FILE, BEGUN_FILE = "ticks.json", "tick.json"
STATES = ".ingested"  # in the store that the branches share
SKIPPED, FAILED, HELD_BACK, NO_LOGS = "skipped", "failed", "held", "no logs"
GATE = ("difference", "interval", "level", "baseline", "look", "reasons")


@dataclass(frozen=True)
class Tick:
    """A scheduled run that is over.

    Attributes:
        at: Its moment, ISO 8601.
        end: promoted, refused, skipped, failed, held (all that there was to read is held) or no logs.
        run: The run that came to a verdict.
        figures: Why, and what was expected: JSON types. Nothing in it depends on how long something took.
        champion: Digest of the weights that serve from now on; None before the first promotion.
        weights: Name of the store's entry with them.
        curated: Name of the store's entry with the tasks of the run that came to a verdict.
        held: The batches that were held at this tick, as `id`, `records` and `reasons`.
        new: Records that were new in the logs.
        entries: Names of the store's entries that the run asked for.
    """

    at: str
    end: str
    run: str | None
    figures: dict[str, Any]
    champion: str | None
    weights: str | None
    curated: str | None
    held: list[dict[str, Any]]
    new: int
    entries: list[str] = field(default_factory=list)

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.at)

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def read_ticks(work_dir: Path) -> list[Tick]:
    """The ticks of a branch that are over.

    Raises:
        DataError: the file is not what a backtest wrote.
    """
    path = work_dir / TICKS_FILE
    try:
        return [Tick(**one) for one in read_json(path)] if path.is_file() else []
    except TypeError as error:
        raise DataError(f"{path}: not ticks of a backtest ({error}); delete {work_dir}, and this branch begins anew") from error


def add_tick(work_dir: Path, tick: Tick) -> None:
    """Note that a tick is over."""
    known = [one.to_record() for one in read_ticks(work_dir)]
    write_whole(work_dir / TICKS_FILE, json.dumps([*known, tick.to_record()], indent=1) + "\n")


def begin_tick(work_dir: Path, at: str) -> list[str]:
    """Note that a tick has begun; returns the runs that were complete before it."""
    path = work_dir / BEGUN_FILE
    begun = read_json(path) if path.is_file() else None
    if not begun or begun["at"] != at:
        begun = {"at": at, "complete": complete_runs(work_dir)}
        write_whole(path, json.dumps(begun) + "\n")
    return list(begun["complete"])


def complete_runs(work_dir: Path) -> list[str]:
    """The runs of a work folder that came to a verdict."""
    return sorted(record.run_id for record in find_runs(work_dir) if record.summary)


def borrow_state(run: Run) -> None:
    """Place what the run's ingest leaves for the next one, where another branch has made that ingest.

    The store has its output, and what it leaves lies in the work folder of that branch; without it the next ingest would begin
    anew, and be another one.
    """
    links = run.snapshot.links
    if links is None or links.state.is_dir():
        return
    kept = run.store.root / STATES / links.state.name
    if kept.is_dir():
        link(kept, links.state)


def lend_states(run: Run) -> None:
    """Keep what the ingests of a work folder have left, for the other branches."""
    for state in Path(run.config.work_dir, INGESTED).glob("*"):
        kept = run.store.root / STATES / state.name
        if state.is_dir() and not kept.exists():
            partial = kept.with_name(f"{PARTIAL}{state.name}")
            remove(partial)
            link(state, partial)
            partial.rename(kept)


def outcome(work_dir: Path, run: Run | None, at: str, before: list[str], problem: Exception | None) -> dict[str, Any]:
    """How a tick ended: `end`, `run`, `figures`, `curated` and `entries` of its `Tick`.

    Args:
        run: What was begun; None where there was nothing to read.
        problem: The error that it ended with.
    """
    if done := [name for name in complete_runs(work_dir) if name not in before]:
        return _verdict(RunRecord(work_dir, done[0]))
    made = sorted(f"{entry.stage}-{entry.key}" for entry in run.used) if run else []
    shared = {"run": None, "curated": None, "entries": made}
    if problem is not None:
        return {"end": FAILED, "figures": {"why": str(problem)}, **shared}
    line = last_decision(str(work_dir))
    if line and line["at"] == at and not line["starts"]:
        return {"end": SKIPPED, "figures": _weighed(line), **shared}
    return {"end": SKIPPED, "figures": {"why": "nothing new since the last run or decision"}, **shared}


def held_at(work_dir: Path, at: str) -> list[dict[str, Any]]:
    """The batches that were screened at a moment, and held."""
    return [
        {"id": batch.id, "records": batch.profile.read, "reasons": [found.check for found in batch.reasons]}
        for batch in Batches(work_dir).all()
        if batch.when == at and batch.state == HELD
    ]


def serving(run: Run) -> tuple[str | None, str | None]:
    """The champion's digest, and the store's entry with its weights; (None, None) before the first promotion."""
    known = known_champion(run.config.work_dir)
    if known is None:
        return None, None
    entry = load_champion(run, version=known["version"], digest=known["digest"])
    return known["digest"], entry.path.name


def _verdict(record: RunRecord) -> dict[str, Any]:
    summary = record.summary or {}
    gate = summary["gate"]
    figures = {name: gate.get(name) for name in GATE} | {"held_out": summary["n_held_out"], "episodes": summary["episodes"]}
    path = record.path / "decision.json"
    figures["decision"] = _weighed(read_json(path)) if path.is_file() else None
    curated = read_json(record.path / LOOP_FILE)["curated"]
    entries = sorted(record.needs() or [])
    return {
        "end": gate["verdict"],
        "run": record.run_id,
        "figures": figures,
        "curated": curated,
        "entries": entries,
    }


def _weighed(line: dict[str, Any]) -> dict[str, Any]:
    """A decision without prices, which depend on how long things took."""
    worth = {name: line.get("worth", {}).get(name) for name in ("room", "new", "gain", "interval", "promoted_with")}
    drift = {name: line.get("drift", {}).get(name) for name in ("found", "attempts", "level")}
    return {"evidence": line.get("evidence"), "since_run": line.get("since_run"), "drift": drift, "worth": worth}
