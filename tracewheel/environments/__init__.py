"""Environments by name: built in, `recorded:PATH` for a recording of logs, or `module:Class` for your own."""

from __future__ import annotations

from tracewheel.core.plugins import load_class
from tracewheel.environments.base import (
    TEXT_TURN,
    Environment,
    GoalFinder,
    Observation,
    OpeningProvider,
    Replier,
    Solver,
    VariantMaker,
    opening_messages,
    opening_of,
    repeat,
    repeats_replies,
)
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.recorded.environment import PREFIX, RecordedEnvironment
from tracewheel.environments.refund_desk.environment import RefundDeskEnvironment
from tracewheel.environments.workspace.environment import WorkspaceEnvironment

ENVIRONMENTS: dict[str, type] = {
    kind.kind: kind for kind in (OrderDeskEnvironment, RefundDeskEnvironment, WorkspaceEnvironment)
}

__all__ = [
    "ENVIRONMENTS",
    "TEXT_TURN",
    "Environment",
    "GoalFinder",
    "Observation",
    "OpeningProvider",
    "Replier",
    "Solver",
    "VariantMaker",
    "make_environment",
    "opening_messages",
    "opening_of",
    "repeat",
    "repeats_replies",
]


def make_environment(kind: str) -> Environment:
    """Make an environment: a built-in name, `recorded:PATH`, or `module:Class` for your own.

    Raises:
        ConfigError: there is no such environment.
        DataError: PATH is not a recording.
    """
    if kind.startswith(PREFIX):
        return RecordedEnvironment(kind.removeprefix(PREFIX))
    return load_class(kind, ENVIRONMENTS, "environment")()
