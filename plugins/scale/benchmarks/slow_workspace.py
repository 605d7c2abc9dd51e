"""The workspace with a slow tool: an environment for the checks of the scale simulation."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import Observation
from tracewheel.environments.workspace.environment import WorkspaceEnvironment

MEAN, SIGMA = "SLOW_TOOL_SECONDS", "SLOW_TOOL_SIGMA"


class SlowWorkspace(WorkspaceEnvironment):
    """Waits before each step, log-normally long; mean seconds and deviation come from the process's environment."""

    kind = "slow_workspace:SlowWorkspace"

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        return replace(super().task_from_log(prompt, logged), environment=self.kind)

    def reset(self, task: Task) -> None:
        super().reset(task)
        self._rng = random.Random()

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        time.sleep(delay(self._rng))
        return super().step(tool, args)


def delay(rng: random.Random) -> float:
    """Seconds of a call."""
    from scale_workload import Spread

    return Spread(float(os.environ.get(MEAN, "0")), float(os.environ.get(SIGMA, "0"))).draw(rng)
