"""Environments by name: a built-in one, a recording of logs as `recorded:PATH`, or a user's own as `module:Class`."""

from __future__ import annotations

from tracewheel.core.plugins import load_class
from tracewheel.environments.base import Environment, GoalFinder, Observation, Opening, Solver, VariantMaker, opening_messages
from tracewheel.environments.recorded.environment import PREFIX, RecordedEnvironment
from tracewheel.environments.workspace.environment import WorkspaceEnvironment

ENVIRONMENTS: dict[str, type] = {WorkspaceEnvironment.kind: WorkspaceEnvironment}

__all__ = [
    "ENVIRONMENTS",
    "Environment",
    "GoalFinder",
    "Observation",
    "Opening",
    "Solver",
    "VariantMaker",
    "make_environment",
    "opening_messages",
]


def make_environment(kind: str) -> Environment:
    """A fresh environment of a kind: a built-in name, `recorded:PATH`, or `module:Class` of your own.

    Raises:
        ConfigError: no such environment.
        DataError: PATH is not a recording.
    """
    if kind.startswith(PREFIX):
        return RecordedEnvironment(kind.removeprefix(PREFIX))
    return load_class(kind, ENVIRONMENTS, "environment")()
