"""The audit of graders in a run: the stage before the gate, and the result of a command noted with a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.engine.run import Run, named
from tasks.engine.stage import Context, stage_task
from tracewheel.config import AuditSections, RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.run_record import LINEAGE_FILE
from tracewheel.core.store import Entry, place_copy
from tracewheel.curation.curated_folder import HELD_OUT, load_tasks
from tracewheel.curation.probes import logged_solutions
from tracewheel.evaluation.graders import AUDIT_FILE, auditor


@stage_task("audit", code="tracewheel.evaluation.graders", sections=AuditSections)
def audit_graders(context: Context[AuditSections], *, curated: Entry) -> dict[str, Any]:
    """Audit what decides success, on held-out tasks."""
    tasks = load_tasks(curated.path, HELD_OUT)
    made = auditor()(context.config, tasks, context.out, logged_solutions(curated.path, tasks), say=context.reporter.say)
    return {"verdict": made["verdict"], "exploitable": made["exploitable"]}


def audited(run: Run, curated: Entry) -> float | None:
    """The share of failures that the graders might accept, for the gate; None where the profile does not ask.

    Raises:
        DataError: no held-out task has a known solution, so that nothing can be audited.
    """
    asked = run.config.gate.false_accepts
    if asked != "audit":
        return asked
    entry = audit_graders(run, curated=curated)
    place_copy(entry.path / AUDIT_FILE, run.record.path / AUDIT_FILE)
    _note_lineage(run, named(entry))
    return float(entry.result["exploitable"])


def note_audit(config: RetrainConfig, run_id: str, out: Path) -> None:
    """Note a command's audit with a finished run: in its record and its lineage.

    Raises:
        DataError: there is no such run, or it is not complete.
    """
    run = Run.on(config, run_id)
    if run.record.summary is None:
        raise DataError(f"{run.record.path}: run {run_id} is not complete or not there; `tracewheel runs status` lists them")
    place_copy(out / AUDIT_FILE, run.record.path / AUDIT_FILE)
    _note_lineage(run, {})


def _note_lineage(run: Run, entry: Mapping[str, Any]) -> None:
    """Write the audit of a run's record into its lineage; `entry` names that of the store, where a stage made it."""
    kept = run.record.path / AUDIT_FILE
    made, lineage = read_json(kept), run.record.lineage
    found = {"file": AUDIT_FILE, "sha256": digest_file(kept), "verdict": made["verdict"], "exploitable": made["exploitable"]}
    lineage["audit"] = {**entry, **found}
    run.record.write(LINEAGE_FILE, lineage)
