"""What a verifier is: a judge of the state that an episode ended in."""

from __future__ import annotations

from typing import Any, Protocol

from tracewheel.types import Task


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
