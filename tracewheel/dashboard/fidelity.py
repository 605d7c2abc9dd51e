"""How faithfully a run trains on what programs were told, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.measured import iterations_of
from tracewheel.report.curves import REASONS

LEAST = 0.99  # gate.min_fidelity of a profile that names none


@dataclass(frozen=True)
class Certificate:
    """The figures of an iteration: shares (None where nothing could be compared), and counts.

    Attributes:
        branches: By reason.
    """

    number: int
    fidelity: float
    tokens: float | None
    rows: float | None
    requests: int
    unmatched: int
    refused: int
    lost: int
    branches: Mapping[str, int]


def certificates_of(run: FinishedRun, loop: Path) -> list[Certificate]:
    """The certificates of a loop's iterations; none where no program played."""
    found = []
    for one in iterations_of(run, loop):
        metrics = one.metrics
        if "fidelity" not in metrics:
            continue
        requests, unmatched, refused, lost = (
            int(metrics.get(name) or 0) for name in ("requests", "requests_unmatched", "requests_refused", "lost_tokens")
        )
        branches = {reason: int(metrics.get(f"branches_{reason}") or 0) for reason in REASONS}
        found.append(
            Certificate(
                one.number,
                metrics["fidelity"],
                metrics.get("fidelity_tokens"),
                metrics.get("fidelity_rows"),
                requests,
                unmatched,
                refused,
                lost,
                {reason: count for reason, count in branches.items() if count},
            )
        )
    return found


def least_of(run: FinishedRun) -> float:
    """What the gate asks for (`gate.min_fidelity`)."""
    wanted = (run.settings.get("gate") or {}).get("min_fidelity")
    return float(wanted) if isinstance(wanted, int | float) else LEAST


def below(certificates: Sequence[Certificate], least: float) -> list[int]:
    """The iterations that the gate would not let pass."""
    return [one.number for one in certificates if one.fidelity < least]
