"""The verdict that another project's environment gave at the end of the episode."""

from __future__ import annotations

import math
from typing import Any

from tracewheel.core.types import Task


class VerdictVerifier:
    """Reads `verdict` of the final state: `{"reward": number or None, "parts": {name: number}}`.

    >>> task = Task("t1", "nemo_gym", "maths", 1, "What is 2 + 2?", {}, {}, "verdict", "t1")
    >>> VerdictVerifier().verify(task, {"verdict": {"reward": 0.5, "parts": {"right": 1.0}}})
    (0.5, {'reward': 0.5, 'right': 1.0})

    The total is the reward, cut to 0 to 1; the part `reward` is as the project gave it. Reading is all that it does, so that
    scoring again gives the same.

    Raises:
        ValueError: the project gave no reward; the episode stays unscored.
        KeyError: the state holds no verdict.
    """

    kind = "verdict"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        verdict = final_state["verdict"]
        reward = verdict["reward"]
        if reward is None or not math.isfinite(reward):
            raise ValueError(f"the environment gave no reward ({reward})")
        return min(1.0, max(0.0, float(reward))), {"reward": float(reward), **verdict.get("parts", {})}
