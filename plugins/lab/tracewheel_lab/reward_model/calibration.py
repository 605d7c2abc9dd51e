"""How far a reward model's scores can be believed: Platt's scaling, the reliability table, and the area under the curve."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

BINS = 10


@dataclass(frozen=True)
class Platt:
    """Probability of success of a score x: 1 / (1 + exp(-(slope x + shift))) (Platt 1999)."""

    slope: float = 1.0
    shift: float = 0.0

    def probability(self, score: float) -> float:
        """The probability of success."""
        return 0.5 * (1.0 + math.tanh(0.5 * (self.slope * score + self.shift)))


def fit_platt(scores: Sequence[float], successes: Sequence[bool]) -> Platt:
    """Platt's scaling with his smoothed targets, which keep it finite where the scores separate.

    With successes alone, or failures alone, nothing can be fitted: the identity.
    """
    from scipy.optimize import minimize

    x, y = np.asarray(scores, dtype=float), np.asarray(successes, dtype=bool)
    good, bad = int(y.sum()), int((~y).sum())
    if not good or not bad:
        return Platt()
    targets = np.where(y, (good + 1) / (good + 2), 1 / (bad + 2))

    def loss(at: np.ndarray) -> float:
        logits = at[0] * x + at[1]
        return float(np.sum(np.logaddexp(0.0, logits) - targets * logits))

    slope, shift = minimize(loss, np.array([1.0, 0.0]), method="BFGS").x
    return Platt(float(slope), float(shift))


def area(scores: Sequence[float], successes: Sequence[bool]) -> float | None:
    """The area under the ROC curve: the chance that a success scores above a failure, ties half. None without both."""
    from scipy.stats import rankdata

    y = np.asarray(successes, dtype=bool)
    good, bad = int(y.sum()), int((~y).sum())
    if not good or not bad:
        return None
    ranks = rankdata(np.asarray(scores, dtype=float))
    return float((ranks[y].sum() - good * (good + 1) / 2) / (good * bad))


def reliability(probabilities: Sequence[float], successes: Sequence[bool]) -> tuple[list[dict[str, float]], float]:
    """The table of ten equal bins (those that are not empty) and the expected calibration error (Guo et al. 2017)."""
    p, y = np.asarray(probabilities, dtype=float), np.asarray(successes, dtype=float)
    places = np.minimum((p * BINS).astype(int), BINS - 1)
    rows = [
        {
            "from": place / BINS,
            "n": int((places == place).sum()),
            "predicted": float(p[places == place].mean()),
            "observed": float(y[places == place].mean()),
        }
        for place in range(BINS)
        if (places == place).any()
    ]
    return rows, float(sum(row["n"] * abs(row["predicted"] - row["observed"]) for row in rows) / len(p)) if len(p) else 0.0


def pairs_in_order(tasks: Sequence[str], scores: Sequence[float], successes: Sequence[bool]) -> float | None:
    """The share of pairs of a success and a failure at the same task in which the success scores higher, ties half.

    Unlike the area it owes nothing to knowing which tasks are hard. None without such pairs.
    """
    gaps = [
        scores[good] - scores[bad]
        for good, bad in itertools.product(range(len(tasks)), repeat=2)
        if tasks[good] == tasks[bad] and successes[good] and not successes[bad]
    ]
    return sum(1.0 if gap > 0 else 0.5 * (gap == 0) for gap in gaps) / len(gaps) if gaps else None


def figures_of(
    tasks: Sequence[str], scores: Sequence[float], successes: Sequence[bool], platt: Platt, resamples: int = 1000
) -> dict[str, Any]:
    """AUC with a 95% interval (bootstrap over tasks), reliability and expected calibration error."""
    bins, error = reliability([platt.probability(score) for score in scores], successes)
    names = sorted(set(tasks))
    rows = {name: [place for place, task in enumerate(tasks) if task == name] for name in names}
    draw, found = np.random.default_rng(0), []
    for _ in range(resamples if names else 0):
        places = [place for at in draw.integers(len(names), size=len(names)) for place in rows[names[at]]]
        value = area([scores[place] for place in places], [successes[place] for place in places])
        if value is not None:
            found.append(value)
    return {
        "tasks": len(names),
        "episodes": len(scores),
        "success": float(np.mean(successes)) if len(successes) else None,
        "auc": area(scores, successes),
        "pairs_in_order": pairs_in_order(tasks, scores, successes),
        "auc_interval": [float(value) for value in np.quantile(found, [0.025, 0.975])] if found else None,
        "ece": error,
        "reliability": bins,
        "platt": asdict(platt),
    }
