"""What an engine serves instead of the policy that it should: told by its log-probabilities of the probe's tokens.

All probes for a vocabulary have the same tokens, so the log-probabilities that were found can be held against those of every
policy that this process has seen served, and against the base's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

KEPT = 64  # policies whose log-probabilities are remembered
LEAST_FIT = 0.7  # the share of what differs from the base that another strength of the same adapter must explain
_served: OrderedDict[str, tuple[float, ...]] = OrderedDict()


def remember(folder: str, logprobs: Sequence[float]) -> None:
    """Note that the policy in a folder is served, with its trainer's log-probabilities of the probe [T]."""
    _served[folder] = tuple(logprobs)
    _served.move_to_end(folder)
    while len(_served) > KEPT:
        _served.popitem(last=False)


def looks_like(
    folder: str, found: Sequence[float], expected: Sequence[float], base: Sequence[float] | None, tolerance: float
) -> str:
    """A sentence that says which fault it looks like.

    Args:
        folder: The policy that should be served.
        found: The engine's log-probabilities [T].
        expected: The trainer's [T].
        base: The engine's for the base alone [T]; None if they are not known.
        tolerance: The largest mean difference that is rounding.
    """
    if not np.isfinite(found).all():
        return "It looks broken: the engine gives log-probabilities that are not finite."
    others = {name: _gap(found, kept) for name, kept in _served.items() if name != folder and len(kept) == len(found)}
    nearest = min(others, key=lambda name: others[name], default=None)
    if base is not None and _gap(found, base) <= min([tolerance, *others.values()]):
        return "It looks missing: these are the log-probabilities of the base without any adapter."
    if nearest is not None and others[nearest] <= tolerance:
        last = next(reversed([name for name in _served if name != folder]))
        if nearest == last:
            return f"It looks stale: the engine still answers as {nearest}, which it served before."
        return f"It looks swapped: the engine answers as {nearest}."
    strength = _strength(found, expected, base) if base is not None else None
    if strength is not None:
        return (
            f"It looks mis-scaled: the adapter acts about {strength:.2g} times as strongly as it was trained; compare "
            "lora_alpha, r and use_rslora of its config with those of training."
        )
    return "It looks swapped: the engine answers as no policy that was served here before."


def _gap(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.abs(np.subtract(one, other)).mean())


def _strength(found: Sequence[float], expected: Sequence[float], base: Sequence[float]) -> float | None:
    """How strongly the adapter acts, 1 as trained; None where another strength does not explain what was found."""
    trained, actual = np.subtract(expected, base), np.subtract(found, base)
    if not (np.square(trained).sum() > 0 and np.square(actual).sum() > 0):
        return None
    fit = float(trained @ actual) / float(np.sqrt(np.square(trained).sum() * np.square(actual).sum()))
    return float(trained @ actual) / float(np.square(trained).sum()) if fit >= LEAST_FIT else None
