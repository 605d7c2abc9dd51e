"""How far a run is that goes on, and when its loop will end, from the seconds that its iterations took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.dashboard.measured import Iteration, iterations_of, loops

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


def progress_of(run: FinishedRun, now: float | None = None) -> list[Progress]:
    """The progress of each loop of a run; of a run that has not begun its loop, none of its iterations is complete.

    Args:
        run: The run.
        now: Seconds since 1970.
    """
    planned = _planned(run)
    found = [_progress(name, iterations_of(run, folder), planned, now) for name, folder in loops(run).items()]
    return found or [Progress("", 0, planned)]


def _progress(name: str, iterations: Sequence[Iteration], planned: int | None, now: float | None) -> Progress:
    done = len(iterations)
    took = [one.total for one in iterations[-RECENT:] if one.total]
    if not took:
        return Progress(name, done, planned)
    each = statistics.median(took)
    ended = iterations[-1].finished
    if planned is None or ended is None:
        return Progress(name, done, planned, each)
    left = max(0, planned - done) * each - ((time.time() if now is None else now) - ended) * (done < planned)
    return Progress(name, done, planned, each, max(0.0, left), late=left < 0)


def _planned(run: FinishedRun) -> int | None:
    try:
        found = (run.settings.get("training") or {}).get("iterations")
    except (OSError, DataError, AttributeError):
        return None
    return found if isinstance(found, int) else None
