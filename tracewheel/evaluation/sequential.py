"""Group-sequential evaluation: a final comparison that stops early when its answer is clear.

The tasks come in a fixed random order and are played in a few equal parts. After each part the gate's own test is applied to
the tasks so far, at a stricter level: the first looks may spend almost nothing of the gate's level (O'Brien and Fleming 1979,
as a spending function: Lan and DeMets 1983). The level of each look follows from the joint distribution of the looks
(Armitage, McPherson and Rowe 1969), so that all of them together promote falsely as often as the gate does with one. It stops
for "not better" when the challenger would hardly pass even at the end (conditional power: Lan, Simon and Halperin 1982), which
can only lower the chance of a promotion.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from tracewheel.config import GateConfig
from tracewheel.core.types import content_hash
from tracewheel.evaluation.gate import decide, shows_gain
from tracewheel.evaluation.paired_outcomes import pair, read_outcomes

if TYPE_CHECKING:
    import pandas as pd

Answer = Literal["better", "not_better", "continue"]
# A challenger is given up when its conditional power is below this, although the gain is taken to be so many standard errors
# above the one that was measured.
FUTILITY, OPTIMISM = 0.1, 1.5
NORMAL = NormalDist()
GRID = 1200
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SequentialDesign:
    """The looks of one comparison.

    Attributes:
        levels: One-sided level of each look; a false promotion at any of them has the level of the comparison.
        shares: Share of the tasks that are played by each look; the last is 1.
    """

    levels: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, level: float, looks: int) -> SequentialDesign:
        """A design with equally spaced looks.

        Args:
            level: One-sided level of the whole comparison.
            looks: How many looks there are; 1 is a comparison without early stopping.

        Raises:
            ValueError: the level is not within 0 to 0.5, or there is no look.
        """
        if not 0.0 <= level < 0.5 or looks < 1:
            raise ValueError(f"a design needs a level from 0 to 0.5 and at least one look, not {level} and {looks}")
        shares = tuple((number + 1) / looks for number in range(looks))
        return cls(look_levels(level, shares), shares)

    def answer_on(self, config: GateConfig, challenger: pd.DataFrame, baseline: pd.DataFrame, look: int) -> Answer:
        """The answer at a look, from the results of the tasks played so far: "better" only if the whole gate promotes.

        Args:
            config: The gate's settings.
            challenger: Results of one evaluation, as `gate.decide` takes them.
            baseline: The same for the policy to beat.
            look: Number of the look, from 0.
        """
        if decide(config, challenger, baseline, level=self.levels[look]).promoted:
            return "better"
        new, old = (table.set_index("task_id").sort_index() for table in (challenger, baseline))
        paired = pair(read_outcomes(new), read_outcomes(old), new["family"].to_numpy(dtype=object), config.greedy_weight)
        answer = self.answer(paired.lowest, look)
        return "continue" if answer == "better" and look < len(self.levels) - 1 else answer

    def answer(self, differences: npt.NDArray[np.float64], look: int) -> Answer:
        """The answer at a look, from the paired differences of the tasks played so far, each within -1 to 1.

        Args:
            differences: Challenger minus baseline by task, [n].
            look: Number of the look, from 0.
        """
        if len(differences) and shows_gain(differences, self.levels[look]):
            return "better"
        if look == len(self.levels) - 1:
            return "not_better"
        return "not_better" if self.conditional_power(differences, look) < FUTILITY else "continue"

    def conditional_power(self, differences: npt.NDArray[np.float64], look: int) -> float:
        """The chance of a promotion at the last look, if the gain is `OPTIMISM` standard errors above the measured one.

        By the normal approximation of the mean; 1 where the differences do not vary and none is negative.
        """
        played, left = len(differences), 1.0 - self.shares[look]
        spread = float(np.std(differences, ddof=1)) if played > 1 else 0.0
        if spread == 0.0:
            return float(played == 0 or differences[0] >= 0.0)
        if self.levels[-1] <= 0.0:
            return 0.0
        share = self.shares[look]
        z = float(np.mean(differences)) * math.sqrt(played) / spread
        drift = (z + OPTIMISM) / math.sqrt(share)  # of the statistic at the end
        needed = -NORMAL.inv_cdf(self.levels[-1])
        return NORMAL.cdf((z * math.sqrt(share) + drift * left - needed) / math.sqrt(left))


def spent_at(level: float, share: float) -> float:
    """How much of a one-sided level the O'Brien-Fleming type function has spent when a share of the tasks is played."""
    if level <= 0.0:
        return 0.0
    return min(level, 2.0 * NORMAL.cdf(NORMAL.inv_cdf(level / 2.0) / math.sqrt(share)))


def look_levels(level: float, shares: Sequence[float]) -> tuple[float, ...]:
    """The one-sided level of each look, at which the looks so far have spent what `spent_at` allows.

    The sum of the first differences is a random walk, normal with variance `share` under no gain. Its density among the
    comparisons that go on is carried from look to look on a grid. Giving up early is left out: it only spends less.
    """
    from scipy.special import ndtr

    if level <= 0.0:
        return (0.0,) * len(shares)
    levels: list[float] = []
    places, density, before, spent = np.zeros(1), np.ones(1), 0.0, 0.0
    for share in shares:
        step, allowed = math.sqrt(share - before), spent_at(level, share) - spent

        def crossed(bound: float, step: float = step, places: Vector = places, density: Vector = density) -> float:
            return float(density @ ndtr((places - bound) / step))

        low, high = 0.0, 40.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if crossed(middle) > allowed else (low, middle)
        levels.append(NORMAL.cdf(-high / math.sqrt(share)))
        grid = np.linspace(-8.0 * math.sqrt(share), high, GRID)
        width = np.full(GRID, grid[1] - grid[0])
        width[[0, -1]] /= 2
        kernel = np.exp(-((grid[:, None] - places) ** 2) / (2 * step**2)) / (step * math.sqrt(2 * math.pi))
        places, density = grid, width * (kernel @ density)
        before, spent = share, spent_at(level, share)
    return tuple(levels)


def in_parts(task_ids: Iterable[str], looks: int) -> list[list[str]]:
    """The tasks in equal parts, in a random order that depends on the tasks' ids alone; sizes differ by at most one."""
    order: Sequence[str] = sorted(task_ids, key=lambda task_id: content_hash(["sequential", task_id]))
    bounds = [round(len(order) * number / looks) for number in range(looks + 1)]
    return [list(order[start:end]) for start, end in itertools.pairwise(bounds)]
