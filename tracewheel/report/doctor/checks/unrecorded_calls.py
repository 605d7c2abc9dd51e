"""Unrecorded calls: episodes that make a call which no log answers, and so cannot be scored."""

from __future__ import annotations

from collections import Counter

from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.report.doctor.checks.shares import Share, share_finding
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "unrecorded_calls"
ADVICE = (
    "Many episodes make a call that no log answers. They end there unscored, so the policy learns only from those that "
    "stay near the logs, and can avoid failing by making such a call. Record more logs (`tracewheel data record`), of "
    "these tools first, or write a simulator of the tools. Otherwise train on the sets of the curation (a warm start on "
    "demonstrations, preference pairs) without reinforcement learning."
)
MOST_NAMES = 5


def unrecorded_calls(records: RunRecords) -> Finding:
    """The share of episodes that made a call for which the recorded environment has no reply."""
    if not records.config.environment.kind.startswith(RECORDED):
        return not_checked(NAME, "The environment is not a recorded one.")
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    # Episodes that the infrastructure failed have no final state.
    played = records.episodes["stop_reason"] != "infrastructure_failed"
    met = records.episodes["unrecorded"].map(len)
    names = Counter(name for names in records.episodes["unrecorded"] for name in names)
    calls = int(records.episodes["named_calls"].sum())
    counts = {
        "share of calls": int(met.sum()) / calls if calls else 0.0,
        "tools": [name for name, _ in names.most_common(MOST_NAMES)],
    }
    return share_finding(NAME, records, Share(met > 0, played, counts), records.config.doctor.limit("unrecorded_calls"), ADVICE)
