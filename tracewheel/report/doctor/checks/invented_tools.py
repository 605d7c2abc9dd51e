"""Invented tools: calls to tools that were never offered."""

from __future__ import annotations

from collections import Counter

from tracewheel.report.doctor.checks.shares import Share, share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "invented_tools"
ADVICE = (
    "The policy calls tools that do not exist. Check that the prompt lists the tools in the form the model knows "
    "(policy.tool_format), remove such logs from the warm start, and set rubric.malformed_penalty or add a verifier that "
    "penalises it."
)
MOST_NAMES = 5


def invented_tools(records: RunRecords) -> Finding:
    """The share of well-formed calls that name a tool which was not offered."""
    if not records.tools:
        return not_checked(NAME, "The environment's tools are not known here.")
    if records.episodes.empty or not records.episodes["named_calls"].sum():
        return not_checked(NAME, "No trajectory holds a well-formed call.")
    unknown = records.episodes["unknown_tools"]
    names = Counter(name for names in unknown for name in names)
    counts = {"names": [name for name, _ in names.most_common(MOST_NAMES)]}
    limits = records.config.doctor.limit("invented_tools")
    return share_finding(NAME, records, Share(unknown.map(len), records.episodes["named_calls"], counts), limits, ADVICE)
