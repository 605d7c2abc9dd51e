"""Environments by name. A user's own is named `module:Class` in the config."""

from __future__ import annotations

from tracewheel.environments.base import Environment, GoalFinder, Observation, VariantMaker
from tracewheel.environments.workspace import WorkspaceEnvironment
from tracewheel.plugins import load_class

ENVIRONMENTS: dict[str, type] = {WorkspaceEnvironment.kind: WorkspaceEnvironment}

__all__ = ["ENVIRONMENTS", "Environment", "GoalFinder", "Observation", "VariantMaker", "make_environment"]


def make_environment(kind: str) -> Environment:
    """A fresh environment of a kind: a built-in name, or `module:Class` of your own.

    Raises:
        ConfigError: no such environment.
    """
    return load_class(kind, ENVIRONMENTS, "environment")()
