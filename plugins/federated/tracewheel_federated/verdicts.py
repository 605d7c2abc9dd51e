"""The clients' counts as a verdict: a global adapter is promoted when no client is shown to lose, or might lose, too much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracewheel_federated.settings import Counts

Z = 1.959964  # of an interval of 95%


def interval_of(counts: Counts) -> tuple[float, float]:
    """The 95% interval of the difference of two success rates on the same tasks (Agresti and Min 2005)."""
    gained, lost, tasks = counts.gained + 0.5, counts.lost + 0.5, counts.tasks + 2
    gain = (gained - lost) / tasks
    spread = Z * math.sqrt(gained + lost - (gained - lost) ** 2 / tasks) / tasks
    return max(-1.0, gain - spread), min(1.0, gain + spread)


def verdict_of(said: Mapping[str, Counts | None], margin: float) -> dict[str, Any]:
    """Whether the global adapter is non-inferior at each client, and who is harmed or cannot tell.

    Args:
        said: Counts by client; None of one that sends none.
        margin: A client may lose less than this much success.

    Returns:
        `promoted`; `harmed`, `undecided` and `silent`: names of clients; `clients`: rates, gain and interval by name.
    """
    clients: dict[str, Any] = {}
    harmed, undecided = [], []
    for name, counts in sorted(said.items()):
        if counts is None or not counts.tasks:
            continue
        low, high = interval_of(counts)
        gain = (counts.after - counts.before) / counts.tasks
        found = "not worse" if low > -margin else "harmed" if high < 0 or gain < -margin else "undecided"
        harmed += [name] * (found == "harmed")
        undecided += [name] * (found == "undecided")
        clients[name] = {
            "verdict": found,
            "before": counts.before / counts.tasks,
            "after": counts.after / counts.tasks,
            "gain": gain,
            "interval": [low, high],
            "tasks": counts.tasks,
        }
    return {
        "promoted": bool(clients) and not harmed and not undecided,
        "margin": margin,
        "harmed": harmed,
        "undecided": undecided,
        "silent": sorted(name for name in said if name not in clients),
        "clients": clients,
    }
