"""Truncation: episodes that a cap ended are scored as if the policy had finished."""

from __future__ import annotations

from tracewheel.report.doctor.checks.shares import Share, share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.scoring.flaws import CAPS

NAME = "truncation"
ADVICE = (
    "Episodes end at a cap, so their outcome is unknown. Raise rollout.max_tokens, rollout.max_turn_tokens or "
    "rollout.max_turns, whichever ends them, or look for a loop; do not train long on truncated episodes."
)


def truncation(records: RunRecords) -> Finding:
    """The share of episodes that a cap on tokens or turns ended."""
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    reasons = records.episodes["stop_reason"]
    cut = reasons.isin(CAPS)
    by_cap = {f"by {cap}": int((reasons == cap).sum()) for cap in CAPS}
    return share_finding(NAME, records, Share(cut, reasons.notna(), by_cap), records.config.doctor.limit("truncation"), ADVICE)
