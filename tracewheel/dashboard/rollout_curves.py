"""Curves over the iterations of a loop: why episodes stop, the parts of the reward, diversity, and what rollouts cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from tracewheel.core.types import Fault
from tracewheel.dashboard.measured import Iteration
from tracewheel.dashboard.rollout_digest import Digest
from tracewheel.dashboard.text import seen
from tracewheel.report.report_data import Curve

SHARE = (0.0, 1.0)
SUCCESS = "success"
LEAST_CHANGE = 0.02  # of a mean; less than that is no trend
CLIMBS = "the policy may have found how to please this part instead of the task: read its best-paid failures"
MOST_LINES = 6  # of a chart; the largest of the last iterations
DIVERSITY = {
    "group_diversity": "groups, distance",
    "distinct_tool_sequences": "distinct runs of calls",
    "zero_variance_share": "groups alike in reward",
}


def stop_curve(digests: Mapping[int, Digest]) -> Curve | None:
    """Share of episodes by stop reason."""
    shares: dict[str, list[tuple[int, float | None]]] = {}
    totals: Counter[str] = Counter()
    counts = {number: digest.reasons for number, digest in digests.items()}
    for found in counts.values():
        totals += found
    for reason, _ in totals.most_common(MOST_LINES):
        shares[seen(reason)] = [
            (number, counts[number][reason] / max(1, digests[number].episodes)) for number in sorted(digests)
        ]
    return Curve("Stop reasons", shares, "share of episodes", SHARE) if shares else None


def blame_curve(digests: Mapping[int, Digest]) -> Curve | None:
    """Share of episodes by who is at fault."""
    totals: Counter[str] = Counter()
    for digest in digests.values():
        totals += digest.at_fault
    series: dict[str, list[tuple[int, float | None]]] = {
        seen(who): [(number, digests[number].at_fault[who] / max(1, digests[number].episodes)) for number in sorted(digests)]
        for who, _ in totals.most_common(len(get_args(Fault)))
    }
    return Curve("Who is at fault", series, "share of episodes that went wrong") if series else None


def flaw_curve(digests: Mapping[int, Digest]) -> Curve | None:
    """Share of episodes by kind of flaw."""
    totals: Counter[str] = Counter()
    for digest in digests.values():
        totals += digest.flaws
    series = {
        kind: [(number, digests[number].flaws[kind] / max(1, digests[number].read)) for number in sorted(digests)]
        for kind, _ in totals.most_common(MOST_LINES)
    }
    return Curve("Flaws", series, "share of episodes that have one") if series else None


def reward_curve(iterations: Sequence[Iteration]) -> Curve | None:
    """Means of the parts of the reward."""
    names = dict.fromkeys(name for one in iterations for name in one.breakdown)
    series = {name: [(one.number, one.breakdown.get(name)) for one in iterations] for name in list(names)[:8]}
    return Curve("Parts of the reward", series, "mean of the scored episodes") if series else None


def part_curves(iterations: Sequence[Iteration]) -> list[Curve]:
    """Each part of the reward with the success beside it; first those that climbed while success fell.

    They compare the means of the first and the last third of the iterations. Without a part beside the success, or without a
    success, there are none.
    """
    success = [(one.number, one.breakdown.get(SUCCESS)) for one in iterations]
    names = dict.fromkeys(name for one in iterations for name in one.breakdown if name != SUCCESS)
    if len([value for _, value in success if value is not None]) < 2:
        return []
    fell = _change(success) < -LEAST_CHANGE
    apart, others = [], []
    for name in names:
        points = [(one.number, one.breakdown.get(name)) for one in iterations]
        if [value for _, value in points] == [value for _, value in success]:
            continue  # the only verifier's total, which is the success
        series = {name.replace("_", " "): points, SUCCESS: success}
        if fell and _change(points) > LEAST_CHANGE:
            apart.append(Curve(f"{seen(name)}: climbs while success falls", series, CLIMBS))
        else:
            others.append(Curve(seen(name), series, "its mean, and the success"))
    return apart + others


def _change(points: Sequence[tuple[int, float | None]]) -> float:
    """The mean of the last third of the points less that of the first."""
    values = [value for _, value in points if value is not None]
    third = max(1, len(values) // 3)
    return (sum(values[-third:]) - sum(values[:third])) / third if values else 0.0


def diversity_curve(iterations: Sequence[Iteration]) -> Curve | None:
    """How different the episodes of a group are."""
    series: dict[str, list[tuple[int, float | None]]] = {}
    for name, label in DIVERSITY.items():
        points = [(one.number, one.metrics.get(name)) for one in iterations]
        if any(value is not None for _, value in points):
            series[label] = points
    return Curve("Diversity within groups", series, "0: all alike", SHARE) if series else None


def speed_curve(iterations: Sequence[Iteration]) -> Curve | None:
    """Seconds that the rollouts of an iteration took for one episode."""
    points: list[tuple[int, float | None]] = []
    for one in iterations:
        seconds, episodes = one.seconds.get("rollout"), one.metrics.get("trajectories") or one.metrics.get("episodes")
        points.append((one.number, seconds / episodes if seconds and episodes else None))
    known = any(value is not None for _, value in points)
    return Curve("Time of rollouts", {"seconds for an episode": points}, "all of a batch together") if known else None
