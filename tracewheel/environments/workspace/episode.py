"""Episodes of given calls in the workspace, as chat messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.episode import play_calls
from tracewheel.environments.workspace.agent import Call
from tracewheel.environments.workspace.environment import WorkspaceEnvironment


def play(task: Task, calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Execute calls, one a turn, in a fresh workspace, and return the episode as OpenAI chat messages.

    The episode ends with `finish`, whose reply is not logged.
    """
    return play_calls(WorkspaceEnvironment(), task, calls)
