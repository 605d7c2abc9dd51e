"""Held batches: new traces that this run left out, because they are unlike those before."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "held_batches"
WAITS = (
    "New traces were left out of this run, because they are unlike all before. `tracewheel batches CONFIG --show ID` shows why,"
    " with examples; --release ID --why TEXT lets them in, --hold ID --why TEXT confirms that they stay out."
)


def held_batches(records: RunRecords) -> Finding:
    """Batches that the screening held and no person has looked at."""
    intake = records.intake
    if intake is None:
        return not_checked(NAME, "The run has no record of what it took in.")
    waiting = [batch for batch in intake["batches"] if batch["waits"]]
    evidence = {
        "held batches": len(intake["batches"]),
        "waiting": [batch["id"] for batch in waiting],
        "records left out": sum(batch["records"] for batch in intake["batches"]),
    }
    if not waiting:
        return Finding(NAME, "healthy", evidence)
    return Finding(NAME, "severe", {**evidence, "why": [why for batch in waiting for why in batch["reasons"]]}, WAITS)
