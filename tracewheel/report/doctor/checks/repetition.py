"""Loops and repetition: episodes that repeat a cycle of calls, or turns that repeat a phrase."""

from __future__ import annotations

from tracewheel.report.doctor.checks.shares import Share, share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.scoring.flaws import LOOP

REPEATED_PHRASES = 0.5  # the share of repeated phrases in one turn
NAME = "repetition"
ADVICE = (
    "Episodes go in circles. Often the entropy has collapsed or a cap rewards length: raise rollout.temperature or "
    "learner.entropy.bonus, lower rollout.max_turns, and let tools report a call that changes nothing."
)


def repetition(records: RunRecords) -> Finding:
    """The share of episodes that repeat a cycle of calls three times with equal replies, or have a repetitive turn."""
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    loops = records.episodes["loop"] >= LOOP
    phrases = records.episodes["repetition"] >= REPEATED_PHRASES
    counts = {"with a loop of calls": int(loops.sum()), "with a repeating turn": int(phrases.sum())}
    limits = records.config.doctor.limit("repetition")
    share = Share(loops | phrases, records.episodes["id"].notna(), counts)
    return share_finding(NAME, records, share, limits, ADVICE)
