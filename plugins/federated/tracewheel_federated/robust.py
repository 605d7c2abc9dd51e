"""What a client sent, looked at beside what the others sent: scores with their evidence, clipping, robust means.

All of it reads the Gram matrix of the updates (`low_rank.gram`), so an update is what a client changed in the weights, not in
the factors, which can differ for equal changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tracewheel import DataError
from tracewheel_federated.low_rank import Array

FEWEST = 3  # with fewer clients nobody can say which is the odd one


@dataclass(frozen=True)
class Anomaly:
    """What one update looks like beside the others.

    Attributes:
        norm: Of the change.
        ratio: The norm over the median norm.
        cosine: With the mean direction of the others; None with fewer than three clients.
        reasons: Why it is left out; empty for an update like the others.
    """

    norm: float
    ratio: float
    cosine: float | None
    reasons: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        return {**asdict(self), "reasons": list(self.reasons)}


def anomalies(gram: Array, *, largest: float, smallest: float, cosine: float) -> list[Anomaly]:
    """Score each update by its norm and its direction.

    Args:
        gram: Inner products [n, n].
        largest: The largest norm, in median norms.
        smallest: The smallest.
        cosine: How far a negative cosine with the others' mean direction may be below what theirs are among themselves. Where
            the mean stays where it is, updates add up to nothing: late in a federation all cosines are low.
    """
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    middle = float(np.median(norms))
    found = []
    for i, norm in enumerate(map(float, norms)):
        ratio = norm / middle if middle else float(norm > 0) or 1.0
        towards, reasons = None, []
        if len(norms) >= FEWEST:
            towards, usual = _cosine(gram, norms, i), _usual_cosine(gram, norms, i)
            if ratio > largest:
                reasons.append(f"its norm is {ratio:.1f} times the median (at most {largest:g})")
            if ratio < smallest:
                reasons.append(f"its norm is {ratio:.3f} of the median (at least {smallest:g})")
            if towards is not None and usual is not None and towards < min(0.0, usual - cosine):
                beside = f"theirs among themselves {usual:.2f} (at most {cosine:g} below)"
                reasons.append(f"its cosine with the others is {towards:.2f}, {beside}")
        found.append(Anomaly(norm, ratio, towards, tuple(reasons)))
    return found


def clip_scales(gram: Array, most: float) -> list[float]:
    """The scale of each update, so that none is longer than `most` median norms."""
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    limit = most * float(np.median(norms))
    return [min(1.0, limit / norm) if norm else 1.0 for norm in map(float, norms)]


def krum(gram: Array, byzantine: int) -> list[int]:
    """The clients that multi-Krum keeps (Blanchard et al. 2017): n - f of the least distance to their n - f - 2 nearest.

    Raises:
        DataError: there are too few clients for that many attackers.
    """
    n = len(gram)
    near = n - byzantine - 2
    if near < 1:
        raise DataError(f"combine: krum needs at least {byzantine + 3} clients with byzantine: {byzantine}; {n} answered")
    squares = np.diag(gram)
    distances = squares[:, None] + squares[None, :] - 2 * gram
    np.fill_diagonal(distances, np.inf)
    scores = np.sort(distances, axis=1)[:, :near].sum(axis=1)
    return sorted(int(i) for i in np.argsort(scores, kind="stable")[: n - byzantine])


def trimmed_mean(changes: Array, byzantine: int) -> Array:
    """The mean of each entry without its `byzantine` largest and smallest values (Yin et al. 2018).

    Raises:
        DataError: nothing is left.
    """
    if len(changes) <= 2 * byzantine:
        raise DataError(f"combine: trimmed_mean needs more than {2 * byzantine} clients; {len(changes)} answered")
    return np.asarray(np.sort(changes, axis=0)[byzantine : len(changes) - byzantine].mean(axis=0))


def median(changes: Array) -> Array:
    """The median of each entry (Yin et al. 2018)."""
    return np.asarray(np.median(changes, axis=0))


def quarantined_by(history: Sequence[Sequence[str]], after: int) -> set[str]:
    """Clients that were left out in each of the last `after` rounds that they took part in.

    Args:
        history: By round, the names that were left out; oldest first.
        after: The number of rounds.
    """
    return set.intersection(*map(set, history[-after:])) if len(history) >= after else set()


def _cosine(gram: Array, norms: Array, i: int) -> float | None:
    """Of one update with the sum of the others' directions; None where there is no direction."""
    others = [j for j in range(len(norms)) if j != i and norms[j] > 0]
    if not others or norms[i] == 0:
        return None
    towards = sum(gram[i, j] / norms[j] for j in others)
    length = sum(gram[j, k] / (norms[j] * norms[k]) for j in others for k in others)
    return float(towards / (norms[i] * np.sqrt(length))) if length > 0 else None


def _usual_cosine(gram: Array, norms: Array, without: int) -> float | None:
    """The median cosine of the others, each with those that are left: one far from all cannot lower it."""
    kept = [i for i in range(len(norms)) if i != without]
    cosines = [_cosine(gram[np.ix_(kept, kept)], norms[kept], i) for i in range(len(kept))]
    known = [each for each in cosines if each is not None]
    return float(np.median(known)) if known else None
