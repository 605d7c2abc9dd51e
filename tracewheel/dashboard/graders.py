"""What the audit of its graders found, on the page of a run."""

from __future__ import annotations

from markupsafe import Markup

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.dashboard.measured import read_small
from tracewheel.evaluation.audit.audit import AUDIT_FILE
from tracewheel.report.audit_page import audit_short

FOLDER = "audit"  # of the work folder, where `tracewheel audit --out` put it


def graders_of(run: FinishedRun) -> tuple[Markup, str] | None:
    """The section of the run's page and whose audit it is; None where neither the run nor its work folder holds one.

    An audit of the work folder was made of the graders and tasks of its command, which need not be those of the run.
    """
    gate = run.settings.get("gate") or {}
    for folder, whose in ((run.record.path, ""), (run.work_dir / FOLDER, f"Of {FOLDER}/ in the work folder, not of this run.")):
        if found := read_small(folder / AUDIT_FILE):
            asked = None if whose else gate.get("false_accepts")
            try:
                return audit_short(found, run.gate, asked), whose
            except DataError as flaw:
                return Markup("<p>{}</p>").format(str(flaw)), whose
    return None
