"""Whether a challenger harms a family of tasks, when families are many and small.

The plain mean of a small family is mostly noise: among 40 families of five tasks some fall by 10 points even when the
challenger gains 10 points in each. So a family is judged by a shrunken estimate and by a test against the others, and what
neither can tell is said: the families of which a fall by the margin is not ruled out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracewheel.core.inference import Labels, holm, mean_interval, precision, student_tail

Vector = npt.NDArray[np.float64]
ROUNDING = 1e-9


@dataclass(frozen=True)
class FamilyEstimate:
    """A family's difference, challenger minus baseline.

    Attributes:
        tasks: Tasks of the family.
        mean: Mean difference over them.
        shrunken: Drawn towards the mean of all families, the more the less is known of this one.
        stands_out: Whether it is significantly below the other families, by Holm's test over all of them.
        low: Lower bound of the family's mean difference. All families' hold together with the confidence.
    """

    tasks: int
    mean: float
    shrunken: float
    stands_out: bool
    low: float

    @property
    def judged(self) -> float:
        """The estimate that the gate judges."""
        return min(self.mean, self.shrunken) if self.stands_out else self.shrunken

    def may_fall(self, margin: float) -> bool:
        """Whether a fall by more than `margin` is not ruled out."""
        return self.low < -margin - ROUNDING

    def is_harmed(self, margin: float) -> bool:
        """Whether it is judged to fall by more than `margin`."""
        return self.judged < -margin - ROUNDING


def family_estimates(
    differences: Vector, families: npt.NDArray[np.object_], confidence: float, components: Labels = None
) -> dict[str, FamilyEstimate]:
    """Estimate each family's difference.

    The shrunken estimate is the empirical Bayes mean under a normal prior: the variance between families by DerSimonian and
    Laird (1986), the variance within them pooled over all, with the design effect of what hangs together. A family stands out
    by Student's test of its mean against that of all other tasks, with Holm's correction (1979): the error over all families
    together is at most 1 - `confidence`. So is that of all lower bounds, by Bonferroni's.
    """
    names, of = np.unique(families.astype(str), return_inverse=True)
    count, total = len(names), len(differences)
    sizes = np.bincount(of).astype(np.float64)
    means = np.bincount(of, differences) / sizes
    residuals = differences - means[of]
    cells = None if components is None else of * (total + 1) + np.unique(np.asarray(components), return_inverse=True)[1]
    within = float(residuals @ residuals) / max(total - count, 1) * precision(residuals, cells).design
    freedom = (total if cells is None else len(np.unique(cells))) - count
    shrunken = _shrink(sizes, means, within if freedom > 0 else 0.0)
    rest = total - sizes
    others = np.where(rest > 0, (differences.sum() - sizes * means) / np.maximum(rest, 1.0), means)
    errors = np.sqrt(within * (1.0 / sizes + 1.0 / np.maximum(rest, 1.0)))
    p_values = [student_tail(below, error, freedom) for below, error in zip(others - means, errors, strict=True)]
    stands_out = holm(p_values, 1.0 - confidence)
    found = {}
    for place, name in enumerate(names):
        own = of == place
        labels = None if cells is None else cells[own]
        low = mean_interval(differences[own], differences[own], (1.0 - confidence) / count, labels).low
        found[str(name)] = FamilyEstimate(
            int(sizes[place]), float(means[place]), float(shrunken[place]), stands_out[place], low
        )
    return found


def _shrink(sizes: Vector, means: Vector, within: float) -> Vector:
    if len(sizes) == 1 or within <= 0.0:
        return means
    weights = sizes / within
    common = float(np.average(means, weights=weights))
    spread = float((weights * (means - common) ** 2).sum()) - (len(sizes) - 1)
    between = max(0.0, spread / float(weights.sum() - (weights**2).sum() / weights.sum()))
    common = float(np.average(means, weights=1.0 / (between + within / sizes)))
    kept: Vector = between / (between + within / sizes)
    return common + kept * (means - common)
