"""Unrecorded calls: episodes that left what the logs show, which nobody can score."""

from __future__ import annotations

from collections import Counter

from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.report.doctor.checks.shares import share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.records import RunRecords

NAME = "unrecorded_calls"
ADVICE = (
    "Many episodes make a call that no log answers. They end there unscored, so the policy learns only from the few that "
    "stay near the logs, and a call that nobody recorded is a way out of failing. Record more logs (`tracewheel data "
    "record`), of these tools first, or give the tools a real simulator. Where neither can be had, learn from the sets of "
    "the curation (a warm start on demonstrations, preference pairs) and leave out reinforcement learning."
)
MOST_NAMES = 5


def unrecorded_calls(records: RunRecords) -> Finding:
    """The share of episodes that made a call which the recorded environment has no reply to."""
    if not records.config.environment.kind.startswith(RECORDED):
        return not_checked(NAME, "The environment is not a recorded one.")
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    # What the machinery failed has no final state to tell by.
    played = records.episodes["stop_reason"] != "infrastructure_failed"
    met = records.episodes["unrecorded"].map(len)
    names = Counter(name for names in records.episodes["unrecorded"] for name in names)
    calls = int(records.episodes["named_calls"].sum())
    more = {
        "share of calls": int(met.sum()) / calls if calls else 0.0,
        "tools": [name for name, _ in names.most_common(MOST_NAMES)],
    }
    return share_finding(NAME, records, met > 0, played, records.config.doctor.unrecorded_calls, ADVICE, more)
