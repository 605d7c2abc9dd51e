"""The check of the agent's work."""

from __future__ import annotations

from typing import Any

from tracewheel import Task


class FilesMoved:
    """Success is every file where the goal has it. Equal states get equal scores: no clock, no chance."""

    kind = "tracewheel_projects.sample.verifier:FilesMoved"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        """1 for success and 0 for anything else; and parts, which are shown and not rewarded."""
        goal, files = task.goal["files"], final_state["files"]
        right = [files.get(path) == text for path, text in goal.items()]
        return float(files == goal), {"files_in_place": sum(right) / len(right)}
