"""Loops and repetition: the same call over and over, or a turn that says one phrase again and again."""

from __future__ import annotations

from tracewheel.report.doctor.checks.shares import share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.records import RunRecords

NAME = "repetition"
LOOP = 3
ADVICE = (
    "Episodes go round in circles. Often the entropy has collapsed or a cap rewards length: raise rollout.temperature "
    "or learner.entropy.bonus, lower rollout.max_turns, and see that a reply which changes nothing says so."
)


def repetition(records: RunRecords) -> Finding:
    """The share of episodes with a cycle of calls gone through three times for nothing new, or a turn that repeats itself."""
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    loops = records.episodes["loop"] >= LOOP
    phrases = records.episodes["repetition"] >= records.config.doctor.repeated_phrases
    more = {"with a loop of calls": int(loops.sum()), "with a repeating turn": int(phrases.sum())}
    limits = records.config.doctor.repetition
    return share_finding(NAME, records, loops | phrases, records.episodes["id"].notna(), limits, ADVICE, more)
