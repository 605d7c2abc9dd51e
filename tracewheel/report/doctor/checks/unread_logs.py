"""Unread logs: records in quarantine, which no run learns from."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords

NAME = "unread_logs"
ADVICE = (
    "Records that nobody reads are in quarantine, with reason and place. See one with `tracewheel ingest --explain FILE:LINE`;"
    " a format may have changed, or a reader of your own may be wanted (docs/traces.md)."
)


def unread_logs(records: RunRecords) -> Finding:
    """The share of the records in quarantine."""
    intake = records.intake
    if intake is None or not intake["read"]:
        return not_checked(NAME, "The run has no record of what it took in.")
    share = intake["quarantined"] / intake["read"]
    evidence = {"quarantined": intake["quarantined"], "read": intake["read"], "share": share}
    examples = [f"{count} {reason}" for reason, count in intake["by_reason"].items()]
    severity = severity_above(share, records.config.doctor.limit("unread_logs"))
    if severity == "healthy":
        return Finding(NAME, severity, evidence)
    return Finding(NAME, severity, {**evidence, "reasons": examples, "as": list(intake["examples"].values())}, ADVICE)
