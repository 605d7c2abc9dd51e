"""The gates of a work folder in their order, so that their error is controlled together.

`work_dir/gates.json` is a list, the oldest first. Each gate has `evidence` (the digests of the two evaluations), `run`,
`baseline`, `began` (UTC) and `level`. It is noted before the gate decides, and its `verdict` after. The same evidence is the
same gate: a run that is resumed or repeated finds its place again, and spends nothing.
"""

from __future__ import annotations

import json
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
from tracewheel.evaluation.error_budget import Look, level_of, planned_level
from tracewheel.evaluation.gate import GATE_FILE

LEDGER_FILE = "gates.json"
YEAR = timedelta(days=365)
FIELDS = {"evidence": str, "run": str, "baseline": str, "began": str, "level": float}


def evidence_of(challenger: Entry, baseline: Entry) -> str:
    """Names two evaluations by their content."""
    return f"{challenger.digest}-{baseline.digest}"


def look_at(run: Run, evidence: str, baseline: str) -> Look:
    """The place of a gate in its work folder's sequence, noted.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    return note(run.config.work_dir, run.config.gate, {"evidence": evidence, "run": run.record.run_id, "baseline": baseline})


def look_of_run(run: Run) -> tuple[Look, float | None]:
    """The place that this run's gate has, or will have, and the spread of differences that the last gate measured."""
    gates = read_ledger(run.config.work_dir)
    ours = next((gate["evidence"] for gate in reversed(gates) if gate["run"] == run.record.run_id), "")
    records = [Path(run.config.work_dir) / gate["run"] / GATE_FILE for gate in reversed(gates) if gate["run"]]
    last: dict[str, Any] = next((read_json(record) for record in records if record.is_file()), {})
    return place_in(gates, ours, clock.now(), run.config.gate), last.get("spread")


def note(work_dir: str, config: GateConfig, gate: dict[str, str], now: datetime | None = None) -> Look:
    """The place of a gate, which is added to the ledger when its evidence is new.

    Args:
        gate: `evidence`, `run` and `baseline`.
        now: When the gate began; by default the present.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    now = now or clock.now()
    with hold_beside(Path(work_dir) / LEDGER_FILE):
        gates = read_ledger(work_dir)
        look = place_in(gates, gate["evidence"], now, config)
        level = level_of(config, look)
        if look.number > len(gates):
            gates.append({**gate, "began": now.isoformat(timespec="seconds"), "level": level})
        elif level > gates[look.number - 1]["level"]:  # judged again with another confidence
            gates[look.number - 1]["level"] = level
        else:
            return look
        write_whole(Path(work_dir) / LEDGER_FILE, json.dumps(gates, indent=2) + "\n")
    return look


def note_verdict(work_dir: str, evidence: str, verdict: str) -> None:
    """Write down what a gate of the ledger decided.

    Raises:
        DataError: the ledger is not what a run wrote.
    """
    with hold_beside(Path(work_dir) / LEDGER_FILE):
        gates = read_ledger(work_dir)
        decided = [gate | {"verdict": verdict} if gate["evidence"] == evidence else gate for gate in gates]
        if decided != gates:
            write_whole(Path(work_dir) / LEDGER_FILE, json.dumps(decided, indent=2) + "\n")


def place_in(gates: list[dict[str, Any]], evidence: str, now: datetime, config: GateConfig) -> Look:
    """The place of a gate: that of the same evidence, or the next.

    A refused gate counts by the present plan where that gives it less: below that level it would have been refused as well.
    """
    known = [place for place, gate in enumerate(gates) if gate["evidence"] == evidence]
    place = known[0] if known else len(gates)
    began = datetime.fromisoformat(gates[place]["began"]) if known else now
    spent = sum(
        min(gate["level"], planned_level(config, number)) if gate.get("verdict") == "refused" else gate["level"]
        for number, gate in enumerate(gates[:place], 1)
        if datetime.fromisoformat(gate["began"]) > began - YEAR
    )
    return Look(place + 1, spent)


def read_ledger(work_dir: str) -> list[dict[str, Any]]:
    """The gates of a work folder, the oldest first.

    Raises:
        DataError: the file is not what a run wrote.
    """
    path = Path(work_dir) / LEDGER_FILE
    way_on = "put back a copy of it, or delete it to begin a new year of gates, whose error adds to that of the last"
    gates = read_json(path, way_on) if path.is_file() else []
    if not isinstance(gates, list) or not all(map(_is_gate, gates)):
        raise DataError(f"{path}: not a list of gates with {', '.join(FIELDS)}; {way_on}")
    return gates


def _is_gate(value: Any) -> bool:
    if not isinstance(value, dict) or not all(isinstance(value.get(name), kind) for name, kind in FIELDS.items()):
        return False
    try:
        return datetime.fromisoformat(value["began"]).tzinfo is not None and 0.0 <= value["level"] <= 1.0
    except ValueError:
        return False
