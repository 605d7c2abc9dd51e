"""What a run may gain, from the room that its tasks leave and the gains of past runs, and what it costs.

**Room.** A group of rollouts teaches only where some of them succeed and some fail. With the posterior Beta(a, b) of a task's
pass rate p and groups of G, that happens with chance s = 1 - E[p^G] - E[(1 - p)^G], and what can still be gained on the task
is 1 - E[p]. The room of a run is the mean of s (1 - E[p]) over its training tasks: a mastered task leaves none, nor does one
that always fails.

**Gain.** The gain that the gate measures is a share of the room: gain = room (b0 + b1 new + noise), where `new` is the share
of training tasks with new evidence. A Bayesian linear regression on past runs with a normal-inverse-gamma prior gives the
predictive distribution of the next one, a Student t (Gelman et al. 2013, chapter 14). The noise of the gate's measurement is
part of it. The prior says 15% of the room and counts as one run, so without past runs the interval is wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

CONFIDENCE = 0.8
PRIOR_MEAN, PRIOR_PRECISION = np.array([0.15, 0.0]), np.diag([1.0, 4.0])
PRIOR_SHAPE, PRIOR_SCALE = 1.0, 0.02  # of the noise's variance: two degrees of freedom, about 0.14 squared
RECENT = 5  # runs whose costs are averaged
LEAST_ROOM = 0.005


@dataclass(frozen=True)
class PastRun:
    """A complete run.

    Attributes:
        gain: What its gate measured, as a share; None where it is not known.
        room: At its start; None where that was not recorded.
        new: Share of its training tasks with new evidence.
        seconds: Of all stages, as spent when each result was made.
        tokens: Generated ones.
    """

    gain: float | None
    room: float | None
    new: float
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Gain:
    """The expected gain of a run, as a share, with its interval at `CONFIDENCE`, and the past runs that it is learnt from."""

    mean: float
    low: float
    high: float
    runs: int

    def says(self) -> str:
        """In a few words, in points."""
        source = f"{self.runs} past runs" if self.runs != 1 else "one past run"
        ends = f"{100 * self.low:.1f} to {100 * self.high:.1f}"
        return f"expected gain {100 * self.mean:.1f} points ({CONFIDENCE:.0%}: {ends}, {source})"


@dataclass(frozen=True)
class Cost:
    """What a run costs; `money` is None without prices."""

    seconds: float
    tokens: int
    money: float | None = None
    currency: str = ""

    def says(self) -> str:
        """In a few words."""
        money = "" if self.money is None else f", {self.currency} {self.money:.2f}"
        time = f"{self.seconds:.0f} seconds" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        return f"{time}, {self.tokens / 1e6:.2f} million tokens{money}"

    def to_record(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def room_of(posteriors: Iterable[tuple[float, float]], group_size: int) -> float:
    """The room that tasks leave, as a share.

    Args:
        posteriors: (alpha, beta) of each training task's pass rate.
        group_size: Rollouts in a group.
    """
    pairs = np.array(list(posteriors), dtype=np.float64).reshape(-1, 2)
    if not len(pairs):
        return 0.0
    alpha, beta = pairs.T
    whole = special.betaln(alpha, beta)
    all_solved = np.exp(special.betaln(alpha + group_size, beta) - whole)
    all_failed = np.exp(special.betaln(alpha, beta + group_size) - whole)
    return float(((1.0 - all_solved - all_failed) * beta / (alpha + beta)).mean())


def expected_gain(room: float, new: float, past: Sequence[PastRun]) -> Gain:
    """The predictive distribution of the gain that the next gate measures.

    Args:
        room: Of the next run.
        new: Share of its training tasks with new evidence.
        past: Past runs. Those without a gain or with next to no room teach nothing.
    """
    known = [run for run in past if run.gain is not None and run.room is not None and run.room >= LEAST_ROOM]
    features = np.array([[1.0, run.new] for run in known]).reshape(-1, 2)
    shares = np.array([float(run.gain or 0.0) / float(run.room or 1.0) for run in known])
    precision = PRIOR_PRECISION + features.T @ features
    weighted = PRIOR_PRECISION @ PRIOR_MEAN + features.T @ shares
    mean = np.linalg.solve(precision, weighted)
    shape = PRIOR_SHAPE + len(known) / 2
    scale = PRIOR_SCALE + 0.5 * float(shares @ shares + PRIOR_MEAN @ PRIOR_PRECISION @ PRIOR_MEAN - mean @ weighted)
    ahead = np.array([1.0, new])
    spread = math.sqrt(max(scale, 1e-12) / shape * (1.0 + float(ahead @ np.linalg.solve(precision, ahead))))
    half = float(special.stdtrit(2 * shape, 0.5 + CONFIDENCE / 2)) * spread
    middle = float(ahead @ mean)
    return Gain(room * middle, max(-1.0, room * (middle - half)), min(1.0, room * (middle + half)), len(known))


def expected_cost(past: Sequence[PastRun], prices: tuple[float | None, float | None], currency: str) -> Cost | None:
    """The mean cost of the last few runs; None without any.

    Args:
        past: Complete runs, the oldest first.
        prices: Of an hour, and of a million tokens; None for what costs nothing extra.
        currency: Of the prices.
    """
    recent = past[-RECENT:]
    if not recent:
        return None
    seconds = sum(run.seconds for run in recent) / len(recent)
    return priced(seconds, round(sum(run.tokens for run in recent) / len(recent)), prices, currency)


def priced(seconds: float, tokens: int, prices: tuple[float | None, float | None], currency: str) -> Cost:
    """Seconds and tokens with their price."""
    hour, million = prices
    money = None if hour is None and million is None else seconds / 3600 * (hour or 0.0) + tokens / 1e6 * (million or 0.0)
    return Cost(round(seconds, 1), tokens, None if money is None else round(money, 4), currency)


def cost_per_point(cost: Cost, gain: float | None, promoted: bool) -> dict[str, float | None]:
    """Seconds, tokens and money for each point gained; None where nothing was: a refused challenger gains nothing."""
    points = 100.0 * gain if gain and promoted and gain > 0 else None
    found = {"seconds": cost.seconds, "tokens": float(cost.tokens), "money": cost.money}
    return {name: None if points is None or value is None else round(value / points, 4) for name, value in found.items()}
