"""The gates of a work folder in their order, so that their error is controlled together, and the candidate that waits.

`work_dir/gates.json` is a list, the oldest first. Each line has `evidence` (the digests of the two evaluations), `run`,
`baseline`, `began` (UTC) and `level`. It is noted before the gate decides, and its `verdict` after. The same evidence is the
same gate: a run that is resumed or repeated finds its place again, and spends nothing.

A line with `candidate` is the confirmation of one, with a level for all its nights: `verdict` (waiting, promoted, dropped,
replaced or ended) and `why`. It waits until the run that proved it has registered it, so that a kill in between loses nothing.
Its `candidate` has `weights` and `against` (entries of the store with the adapters of the candidate and of the policy to beat;
"" is the base), `digest` and `champion` (their digests; "" for no champion), `planned` (fresh tasks), `screens` (evaluations
whose tasks are no evidence) and `nights`, a record of each: `run`, `at`, `evaluations`, and the figures of `candidate.confirm`
on all fresh tasks so far.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tracewheel.config import GateConfig
from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold_beside
from tracewheel.core.store import Entry, write_whole
from tracewheel.evaluation.candidate import ENDED, REPLACED, WAITING
from tracewheel.evaluation.error_budget import CONFIRMATION, NIGHT, Look, level_of, planned_level
from tracewheel.evaluation.gate import GATE_FILE

LEDGER_FILE = "gates.json"
YEAR = timedelta(days=365)
FIELDS = {"evidence": str, "run": str, "baseline": str, "began": str, "level": float}
CANDIDATE = "candidate"
OF_A_CANDIDATE = {
    "weights": str,
    "against": str,
    "digest": str,
    "champion": str,
    "planned": int,
    "screens": list,
    "nights": list,
}
OF_A_NIGHT = {"run": str, "evaluations": list, "spent": float}
Gate = dict[str, Any]


def evidence_of(challenger: Entry, baseline: Entry) -> str:
    """Names two evaluations by their content."""
    return f"{challenger.digest}-{baseline.digest}"


def look_of_run(run: Run, first: Look) -> tuple[Look, float | None]:
    """The place that this run's gate has, or will have, and the spread of differences that the last gate measured."""
    gates = read_ledger(run.config.work_dir)
    looks = [gate for gate in gates if CANDIDATE not in gate]
    ours = next((gate["evidence"] for gate in reversed(looks) if gate["run"] == run.record.run_id), "")
    records = [Path(run.config.work_dir) / gate["run"] / GATE_FILE for gate in reversed(looks) if gate["run"]]
    last: dict[str, Any] = next((read_json(record) for record in records if record.is_file()), {})
    return place_in(gates, ours, clock.now(), run.config.gate, first), last.get("spread")


def note(
    work_dir: str, config: GateConfig, gate: dict[str, Any], now: datetime | None = None, first: Look | None = None
) -> Look:
    """The place of a gate, which is added to the ledger when its evidence is new.

    Args:
        gate: `evidence`, `run` and `baseline`, and `candidate` of a confirmation, which takes the place of one that waits.
        now: When the gate began; by default the present.
        first: Says which kind of look it is.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    now = now or clock.now()
    with hold_beside(Path(work_dir) / LEDGER_FILE):
        gates = read_ledger(work_dir)
        look = place_in(gates, gate["evidence"], now, config, first)
        level = level_of(config, look)
        known = next((one for one in gates if one["evidence"] == gate["evidence"]), None)
        if known is None:
            if CANDIDATE in gate:
                if level <= 0.0:
                    return look
                gates = [one | _replaced(gate) if is_waiting(one) else one for one in gates]
            gates.append({**gate, "began": now.isoformat(timespec="seconds"), "level": level})
        elif level > known["level"]:  # judged again with another confidence
            known["level"] = level
        else:
            return look
        write_whole(Path(work_dir) / LEDGER_FILE, json.dumps(gates, indent=2) + "\n")
    return look


def note_verdict(work_dir: str, evidence: str, verdict: str) -> None:
    """Write down what a gate of the ledger decided.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    change(work_dir, evidence, lambda gate: gate | {"verdict": verdict})


def change(work_dir: str, evidence: str, changed: Callable[[Gate], Gate]) -> None:
    """Change the line with this evidence.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    with hold_beside(Path(work_dir) / LEDGER_FILE):
        gates = read_ledger(work_dir)
        decided = [changed(gate) if gate["evidence"] == evidence else gate for gate in gates]
        if decided != gates:
            write_whole(Path(work_dir) / LEDGER_FILE, json.dumps(decided, indent=2) + "\n")


def place_in(gates: list[Gate], evidence: str, now: datetime, config: GateConfig, first: Look | None = None) -> Look:
    """The place of a gate among those of its kind: that of the same evidence, or the next.

    A refused gate counts by the present plan where that gives it less: below that level it would have been refused as well.

    Args:
        first: Says which kind of look it is.
    """
    first = first or Look()
    known = [place for place, gate in enumerate(gates) if gate["evidence"] == evidence]
    place = known[0] if known else len(gates)
    began = datetime.fromisoformat(gates[place]["began"]) if known else now
    confirms = first.kind == CONFIRMATION
    plan, spent, nights = replace(first, kind=NIGHT) if confirms else first, 0.0, 0
    for gate in gates[:place]:
        nights += CANDIDATE not in gate
        if datetime.fromisoformat(gate["began"]) > began - YEAR:
            planned = planned_level(config, replace(plan, number=nights))
            spent += min(gate["level"], planned) if gate.get("verdict") == "refused" else gate["level"]
    return replace(first, number=1 + (place - nights if confirms else nights), spent=spent)


def wait(run: Run, gate: Gate) -> bool:
    """Let a candidate wait, with this line; whether it does: not without a level, and not where its evidence is judged."""
    note(run.config.work_dir, run.config.gate, gate, first=Look(kind=CONFIRMATION))
    known = next((one for one in read_ledger(run.config.work_dir) if one["evidence"] == gate["evidence"]), None)
    return known is not None and (is_waiting(known) or known["run"] == gate["run"])


def end(work_dir: str, evidence: str, why: str) -> None:
    """End the wait of a candidate, if it waits; what its looks have spent stays spent.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    change(work_dir, evidence, lambda gate: gate | {"verdict": ENDED, "why": why} if is_waiting(gate) else gate)


def entries_of(gate: Gate) -> list[str]:
    """The entries of the store that a candidate's confirmation needs."""
    own = gate[CANDIDATE]
    played = [name for night in own["nights"] for name in night["evaluations"]]
    return [name for name in (own["weights"], own["against"], *own["screens"], *played) if name]


def is_waiting(gate: Gate) -> bool:
    """Whether a line is the confirmation of a candidate that waits."""
    return CANDIDATE in gate and gate.get("verdict", WAITING) == WAITING


def waiting_candidate(work_dir: str) -> Gate | None:
    """The line of the candidate that waits; None without one.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    return next((gate for gate in reversed(read_ledger(work_dir)) if is_waiting(gate)), None)


def began_with(run: Run, start: Mapping[str, Any]) -> Gate | None:
    """The line of the candidate that waited when a run began (`start.json`); None where none did."""
    name = start.get("candidate")  # runs of earlier versions have none
    return next((gate for gate in read_ledger(run.config.work_dir) if name and gate["evidence"] == name), None)


def read_ledger(work_dir: str) -> list[Gate]:
    """The gates of a work folder, the oldest first.

    Raises:
        DataError: the file is not what a run wrote.
    """
    path = Path(work_dir) / LEDGER_FILE
    way_on = "put back a copy of it, or delete it to begin a new year of gates, whose error adds to that of the last"
    gates = read_json(path, way_on) if path.is_file() else []
    if not isinstance(gates, list):
        raise DataError(f"{path}: not a list of gates with {', '.join(FIELDS)}; {way_on}")
    for number, gate in enumerate(gates, 1):
        if flaw := _flaw(gate):
            raise DataError(f"{path}: not a list of gates with {', '.join(FIELDS)}: {flaw} of gate {number} is wrong; {way_on}")
    return gates


def _replaced(gate: Gate) -> Gate:
    return {"verdict": REPLACED, "why": f"a challenger of run {gate['run']}, trained from it, takes its place"}


def _flaw(value: Any) -> str:
    """The first field of a line that is missing or wrong; "" where it is whole."""
    if found := _wrong(value, FIELDS):
        return found
    try:
        if datetime.fromisoformat(value["began"]).tzinfo is None:
            return "began"
    except ValueError:
        return "began"
    if not 0.0 <= value["level"] <= 1.0:
        return "level"
    own = value.get(CANDIDATE, {})
    found = _wrong(own, OF_A_CANDIDATE) if CANDIDATE in value else ""
    nights = () if found else own.get("nights", ())
    found = found or next((f"nights: {flaw}" for night in nights if (flaw := _wrong(night, OF_A_NIGHT))), "")
    return f"{CANDIDATE}: {found}" if found else ""


def _wrong(value: Any, fields: Mapping[str, type]) -> str:
    """The first of these fields that a record lacks, or has with another type."""
    if not isinstance(value, dict):
        return "the whole"
    return next((name for name, kind in fields.items() if not isinstance(value.get(name), kind)), "")
