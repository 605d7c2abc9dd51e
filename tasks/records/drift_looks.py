"""The looks at drift of a work folder, so that a year of them gives few false alarms.

`work_dir/drift_looks.json` is a list, the oldest first: `evidence` (a hash of the compared traces), `since` (the run that is
compared with), `attempts` (new ones), `began` (UTC), `level`, `says` and `found`. A look is made when the new attempts have
grown by a quarter since the last one, so that ticks every few minutes do not use up the year's error. The levels of any 365
days sum to at most `schedule.drift_level`, as those of the gates do (`evaluation.error_budget`), and the union bound holds
whatever the dependence. The same evidence is the same look.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.records.gate_ledger import YEAR, place_in
from tracewheel.config import GateConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import write_whole
from tracewheel.core.types import content_hash
from tracewheel.evaluation.error_budget import level_of
from tracewheel.operations.drift import curated_attempts, find_drift

LOOKS_FILE = "drift_looks.json"
FIELDS = {"evidence", "since", "attempts", "began", "level", "says", "found"}
LEAST, GROWTH = 5, 1.25
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
    if not run.config.schedule.drift_level:
        return {"found": False, "says": "drift is not tested (schedule.drift_level is 0)"}
    before, attempts = curated_attempts(earlier), curated_attempts(curated)
    after = attempts[~attempts["trace_id"].isin(before["trace_id"])]
    looks = read_looks(run.config.work_dir)
    evidence = content_hash([since, sorted(after["trace_id"])])
    known = next((look for look in looks if look["evidence"] == evidence), None)
    ours = [look for look in looks if look["since"] == since]
    wanted = max(LEAST, math.ceil(GROWTH * ours[-1]["attempts"])) if ours else LEAST
    if known is None and len(after) < wanted:
        if not ours:
            return {"found": False, "says": f"{len(after)} new attempts are too few to show a drift (needs {LEAST})"}
        return ours[-1] | {"says": f"{ours[-1]['says']} at {ours[-1]['attempts']} new attempts, tested again at {wanted}"}
    config = GateConfig(confidence=1.0 - 2.0 * run.config.schedule.drift_level, gates_per_year=LOOKS_A_YEAR)
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
