"""Whether a challenger harms a family of tasks, when families are many and small.

The plain mean of a small family is mostly noise: among 40 families of five tasks some fall by 10 points even when the
challenger gains 10 points in each. So a family is judged by a shrunken estimate, unless it stands out from the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracewheel.core.paired_tests import holm, lower_tail

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FamilyEstimate:
    """A family's difference, challenger minus baseline.

    Attributes:
        tasks: Tasks of the family.
        mean: Mean difference over them.
        shrunken: Drawn towards the mean of all families, the more the less is known of this one.
        stands_out: Whether it is significantly below the other families, by Holm's test over all of them.
    """

    tasks: int
    mean: float
    shrunken: float
    stands_out: bool

    @property
    def judged(self) -> float:
        """The estimate that the gate judges."""
        return min(self.mean, self.shrunken) if self.stands_out else self.shrunken


def family_estimates(differences: Vector, families: npt.NDArray[np.object_], confidence: float) -> dict[str, FamilyEstimate]:
    """Estimate each family's difference.

    The shrunken estimate is the empirical Bayes mean under a normal prior: the variance between families by DerSimonian and
    Laird (1986), the variance within them pooled over all. A family stands out when the mean of as many tasks drawn from the
    other families would be so low with a probability that Holm's test (1979) rejects; the error over all families together
    is at most 1 - `confidence`.
    """
    names = sorted(set(families.tolist()))
    groups = [differences[families == name] for name in names]
    means = np.array([group.mean() for group in groups])
    shrunken = _shrink(groups, means)
    p_values = [
        lower_tail(differences[families != name], len(group), float(mean))
        for name, group, mean in zip(names, groups, means, strict=True)
    ]
    stands_out = holm(p_values, 1.0 - confidence)
    return {
        str(name): FamilyEstimate(len(group), float(mean), float(estimate), found)
        for name, group, mean, estimate, found in zip(names, groups, means, shrunken, stands_out, strict=True)
    }


def _shrink(groups: list[Vector], means: Vector) -> Vector:
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    freedom = float(sizes.sum()) - len(groups)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom if freedom > 0 else 0.0
    if len(groups) == 1 or within <= 0.0:
        return means
    weights = sizes / within
    common = float(np.average(means, weights=weights))
    spread = float((weights * (means - common) ** 2).sum()) - (len(groups) - 1)
    between = max(0.0, spread / float(weights.sum() - (weights**2).sum() / weights.sum()))
    common = float(np.average(means, weights=1.0 / (between + within / sizes)))
    kept: Vector = between / (between + within / sizes)
    return common + kept * (means - common)
