"""How far a run is: when its loop will end, and how faithfully it trains on what programs were told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import loops_of
from tracewheel.dashboard.curves import REASONS
from tracewheel.dashboard.measured import Iteration, iterations_of
from tracewheel.report.finished_run import FinishedRun

RECENT = 8  # iterations whose median counts: the first ones may be slower or faster than those of now


@dataclass(frozen=True)
class Progress:
    """A loop on its way.

    Attributes:
        loop: The specialist's name; "" for the run's own loop.
        done, planned: Iterations; `planned` is None where the profile cannot be read.
        each: Seconds of an iteration, the median of the last ones; None before the first is complete.
        left: Seconds until the last iteration is complete; None where that is not known.
        late: Whether the iteration of now takes longer than all the time that was left by the measure.
    """

    loop: str
    done: int
    planned: int | None
    each: float | None = None
    left: float | None = None
    late: bool = False

    @property
    def share(self) -> float:
        """How much of the iterations is complete."""
        return min(1.0, self.done / self.planned) if self.planned else 0.0


def progress_of(run: FinishedRun) -> list[Progress]:
    """The progress of each loop of a run; of a run that has not begun its loop, none of its iterations is complete."""
    planned = _planned(run)
    found = [
        _progress(name, iterations_of(run, folder), planned, time.time()) for name, folder in loops_of(run.record.path).items()
    ]
    return found or [Progress("", 0, planned)]


def _progress(name: str, iterations: Sequence[Iteration], planned: int | None, now: float) -> Progress:
    done = len(iterations)
    took = [one.total for one in iterations[-RECENT:] if one.total]
    if not took:
        return Progress(name, done, planned)
    each = statistics.median(took)
    ended = iterations[-1].finished
    if planned is None or ended is None:
        return Progress(name, done, planned, each)
    left = max(0, planned - done) * each - (now - ended) * (done < planned)
    return Progress(name, done, planned, each, max(0.0, left), late=left < 0)


def _planned(run: FinishedRun) -> int | None:
    try:
        found = (run.settings.get("training") or {}).get("iterations")
    except (OSError, DataError, AttributeError):
        return None
    return found if isinstance(found, int) else None


LEAST = 0.99  # what the gate asks for; runs of earlier versions may name another (gate.min_fidelity)


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
    return [
        Certificate(
            number=one.number,
            fidelity=one.metrics["fidelity"],
            tokens=one.metrics.get("fidelity_tokens"),
            rows=one.metrics.get("fidelity_rows"),
            requests=_count(one, "requests"),
            unmatched=_count(one, "requests_unmatched"),
            refused=_count(one, "requests_refused"),
            lost=_count(one, "lost_tokens"),
            branches={reason: count for reason in REASONS if (count := _count(one, f"branches_{reason}"))},
        )
        for one in iterations_of(run, loop)
        if "fidelity" in one.metrics
    ]


def _count(one: Iteration, name: str) -> int:
    return int(one.metrics.get(name) or 0)


def least_of(run: FinishedRun) -> float:
    """What the gate asks for (`gate.min_fidelity`)."""
    wanted = (run.settings.get("gate") or {}).get("min_fidelity")
    return float(wanted) if isinstance(wanted, int | float) else LEAST


def below(certificates: Sequence[Certificate], least: float) -> list[int]:
    """The iterations that the gate would not let pass."""
    return [one.number for one in certificates if one.fidelity < least]
