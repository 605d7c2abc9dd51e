"""Environments by name: built in, `recorded:PATH` for a recording of logs, or `module:Class` for your own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracewheel.core.kinds import Kind, build, parse_kind
from tracewheel.core.types import Task
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

RECORDED = "recorded"
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
    """Make an environment: a built-in name, `recorded:PATH`, or `module:Class` for your own, with arguments as in `core.kinds`.

    The tasks that an environment with arguments makes name these, too.

    Raises:
        ConfigError: there is no such environment, or it does not take the arguments.
        DataError: PATH is not a recording.
    """
    wanted = parse_kind(kind)
    if wanted.kind.startswith(PREFIX) and not wanted.args:
        return RecordedEnvironment(wanted.kind.removeprefix(PREFIX))
    made: Environment = build(wanted, {**ENVIRONMENTS, RECORDED: RecordedEnvironment}, "environment")
    if wanted.args and not isinstance(made, RecordedEnvironment):
        _name_in_tasks(made, wanted)
    return made


def _name_in_tasks(environment: Environment, kind: Kind) -> None:
    """Have the tasks that an environment makes name it with its arguments, so that any process makes it alike."""

    def named(found: Any) -> Any:
        if isinstance(found, list):
            return [named(task) for task in found]
        return replace(found, environment=kind.text) if isinstance(found, Task) else found

    for name in ("task_from_log", "variants", "task_reached"):
        if method := getattr(environment, name, None):
            setattr(environment, name, lambda *given, method=method, **more: named(method(*given, **more)))
