"""What a verifier is: a judge of the state that an episode ended in."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

from tracewheel.core.types import Task


class Verifier(Protocol):
    """Judges a final state against a task's goal.

    Implementations are pure: no randomness, no clock, no memory between calls, so that scoring a
    stored trajectory again gives the same numbers. They raise when the state or the goal is not
    something they can judge, which leaves the trajectory unscored; a bad episode is a low total.
    """

    kind: str

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        """The total in [0, 1], and what it is made of: one number for each thing checked."""
        ...


@runtime_checkable
class GradedVerifier(Verifier, Protocol):
    """A verifier that can also say how far an episode has come. To be one is optional."""

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """How far a state is on the way to the goal, from 0 to 1; 1 for a solved one. Pure, as `verify` is."""
        ...


def progress(verifier: Verifier, task: Task, state: dict[str, Any]) -> float:
    """How far a state is on the way to a task's goal: what the verifier says, else the mean of its parts, else its total.

    Raises:
        ValueError: it is not within 0 to 1.
    """
    if isinstance(verifier, GradedVerifier):
        value = float(verifier.progress(task, state))
    else:
        total, parts = verifier.verify(task, state)
        value = sum(parts.values()) / len(parts) if parts else float(total)
    if not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"verifier {verifier.kind}: progress {value}, outside 0 to 1")
    return value
