"""The protocol of verifiers, which check the final state of an episode."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

from tracewheel.core.types import Task


class Verifier(Protocol):
    """Checks a final state against a task's goal.

    Implementations are pure (no randomness, no clock, no memory between calls), so that scoring a stored trajectory again
    gives the same numbers. They raise on a state or a goal that they cannot check, which leaves the trajectory unscored; a
    bad episode is a low total.
    """

    kind: str

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        """The total in [0, 1], and its breakdown: one number for each check."""
        ...


@runtime_checkable
class GradedVerifier(Verifier, Protocol):
    """Optional protocol: a verifier that also measures partial progress."""

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The progress of a state towards the goal, in [0, 1], 1 when solved. Pure, like `verify`."""
        ...


def state_progress(verifier: Verifier, task: Task, state: dict[str, Any]) -> float:
    """The progress of a state towards a task's goal.

    This is the verifier's `progress` where it has one, else the mean of its parts, else its total.

    Raises:
        ValueError: it is outside [0, 1].
    """
    if isinstance(verifier, GradedVerifier):
        value = float(verifier.progress(task, state))
    else:
        total, parts = verifier.verify(task, state)
        value = sum(parts.values()) / len(parts) if parts else float(total)
    if not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"verifier {verifier.kind}: progress {value}, outside 0 to 1")
    return value
