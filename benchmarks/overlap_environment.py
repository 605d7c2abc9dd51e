"""The workspace with slow tools: each call of a training episode takes `OVERLAP_DELAY` seconds more.

Only tasks in the file `OVERLAP_TASKS` (a JSON list of ids) are slow, so that curation and evaluations, which the
benchmark does not measure, run at full speed. The time at which the first slow episode begins goes into `OVERLAP_LOG`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
from pathlib import Path
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import Observation
from tracewheel.environments.workspace.environment import WorkspaceEnvironment


class SlowWorkspace(WorkspaceEnvironment):
    """A workspace that waits before it answers."""

    kind = "overlap_environment:SlowWorkspace"

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        return dataclasses.replace(super().task_from_log(prompt, logged), environment=self.kind)

    def reset(self, task: Task) -> None:
        self._delay = float(os.environ.get("OVERLAP_DELAY", "0")) if task.id in slow_tasks() else 0.0
        if self._delay and (log := os.environ.get("OVERLAP_LOG")) and not Path(log).exists():
            Path(log).write_text(str(time.time()))
        super().reset(task)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        time.sleep(self._delay)
        return super().step(tool, args)


@functools.cache
def slow_tasks() -> frozenset[str]:
    path = os.environ.get("OVERLAP_TASKS")
    return frozenset(json.loads(Path(path).read_text())) if path else frozenset()
