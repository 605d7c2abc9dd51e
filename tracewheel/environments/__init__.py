"""Environments by name: built in, `recorded:PATH` for a recording of logs, or `module:Class` for your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import OWN_CLASS, WHEELS, KindTable, inner_kinds, load_class
from tracewheel.core.kinds import Kind, args_model, build, check_reach, keywords_of, parse_kind
from tracewheel.core.own_code import guard
from tracewheel.core.types import Task, canonical_json
from tracewheel.environments.base import (
    TEXT_TURN,
    Attackable,
    Environment,
    GoalFinder,
    NearMisser,
    Observation,
    OpeningProvider,
    OutcomeTeller,
    Refusal,
    Replier,
    Restorable,
    Solver,
    TaskMaker,
    ToolError,
    VariantMaker,
    opening_messages,
    opening_of,
    repeat,
    repeats_replies,
)
from tracewheel.environments.own_calls import hold
from tracewheel.environments.returns import CHECKS
from tracewheel.environments.running import (
    SharesResources,
    arguments_of,
    awaited,
    close_environment,
    most_open,
    share_resources,
)

PREFIX = "recorded:"
# Messages and tools of a request to those that the policy is given.
ServedPrompt = Callable[[list[dict[str, Any]], list[dict[str, Any]]], tuple[list[dict[str, Any]], list[dict[str, Any]]]]
ENVIRONMENTS = KindTable(
    "tracewheel.environments",
    {
        "mcp": "tracewheel.environments.mcp.environment:McpEnvironment",
        "order_desk": "tracewheel.environments.order_desk.environment:OrderDeskEnvironment",
        "recorded": "tracewheel.environments.recorded.environment:RecordedEnvironment",
        "refund_desk": "tracewheel.environments.refund_desk.environment:RefundDeskEnvironment",
        "several": "tracewheel.environments.several.environment:SeveralEnvironments",
        "workspace": "tracewheel.environments.workspace.environment:WorkspaceEnvironment",
    },
)
__all__ = [
    "ENVIRONMENTS",
    "TEXT_TURN",
    "Attackable",
    "Environment",
    "GoalFinder",
    "NearMisser",
    "Observation",
    "OpeningProvider",
    "OutcomeTeller",
    "Refusal",
    "Replier",
    "Restorable",
    "SharesResources",
    "Solver",
    "TaskMaker",
    "ToolError",
    "VariantMaker",
    "close_environment",
    "declared_verifiers",
    "make_environment",
    "member_for",
    "most_episodes",
    "open_environment",
    "opening_messages",
    "opening_of",
    "repeat",
    "repeats_replies",
    "served_prompt",
    "share_resources",
    "takes_argument",
    "unwrapped",
    "wanted_threads",
]


def make_environment(kind: str) -> Environment:
    """Make an environment: a built-in name, `recorded:PATH`, or `module:Class` for your own, with arguments as in `core.kinds`.

    The tasks that an environment with arguments makes name these, too. `kind` may come from data: of kinds that are not built
    in, or that reach beyond their arguments, those that the user named are made (`core.kind_table`).

    Raises:
        ConfigError: there is no such environment, it does not take the arguments, or only data names it.
        DataError: PATH is not a recording.
    """
    check_reach(kind, ENVIRONMENTS, "environment")
    wanted = parse_kind(kind)
    if wanted.kind.startswith(PREFIX) and not wanted.args:
        recorded: Environment = ENVIRONMENTS["recorded"](wanted.kind.removeprefix(PREFIX))
        return recorded
    made: Environment = build(wanted, ENVIRONMENTS, "environment")
    awaited(made)
    own = OWN_CLASS.fullmatch(wanted.kind) or (wanted.kind in ENVIRONMENTS.wheels and wanted.kind not in WHEELS["environment"])
    if own:
        guard(made, wanted.kind, "environment", CHECKS)
    if own or hasattr(made, "exceptions"):  # one of ours may ask for the contract, too
        hold(made, f"environment '{wanted.kind}'")
    if wanted.args and wanted.kind not in ("recorded", "several"):
        _name_in_tasks(made, wanted)
    return made


def member_for(environment: Environment, kind: str) -> Environment | None:
    """The environment for logged episodes that name this kind: it, one of its members, or None."""
    if environment.kind == "several":
        member: Environment | None = environment.member(kind)  # type: ignore[attr-defined]
        return member
    return environment if environment.kind == kind else None


def declared_verifiers(kind: str) -> tuple[str, ...] | None:
    """The verifiers that an environment's tasks may name, by its class's `verifiers`; of `several`, those of all members.

    None where it declares none, or where the class cannot be had: its tasks may name any.
    """
    found: list[str] = []
    for text in (kind, *inner_kinds(kind)):
        name = parse_kind(text).kind
        if text != kind and name not in ENVIRONMENTS and ":" not in name:
            continue  # a simulated user or a sandbox in its arguments
        try:
            declared = getattr(_class_of(text), "verifiers", None)
        except ConfigError:
            return None
        if not isinstance(declared, tuple):
            return None
        found += declared
    return tuple(dict.fromkeys(found))


@contextmanager
def open_environment(kind: str) -> Iterator[Environment]:
    """An environment with what its episodes share, for replays; it is closed at the end.

    Raises:
        Exception: as `make_environment`, and whatever its `setup` raises.
    """
    environment = make_environment(kind)
    try:
        share_resources(environment, kind)
        yield environment
    finally:
        close_environment(environment)


def wanted_threads(kind: str, undeclared: int) -> int:
    """How many threads an environment's calls want: `tool_threads` of its class, 0 where calls take no time.

    Args:
        kind: Its name, with arguments.
        undeclared: Of a class that does not say, and of one that talks to a user who may be a model.

    Raises:
        ConfigError: there is no such environment.
    """
    kind = unwrapped(kind)
    declared = getattr(_class_of(kind), "tool_threads", None)
    inner = {parse_kind(text).kind for text in inner_kinds(kind)} - {parse_kind(kind).kind, "scripted", *ENVIRONMENTS}
    return undeclared if declared is None or (not declared and inner) else int(declared)


def most_episodes(kind: str) -> int | None:
    """How many episodes of an environment may be open at once in this process; None without a limit.

    Raises:
        ConfigError: there is no such environment, or its limit is no count.
    """
    kind = unwrapped(kind)
    found = _class_of(kind)
    return None if found is ENVIRONMENTS["recorded"] else most_open(found, kind)


def takes_argument(kind: str, name: str) -> bool:
    """Whether the class of an environment names an argument; of one that wraps another, which passes it on, the other's.

    Raises:
        ConfigError: there is no such environment.
    """
    found = _class_of(unwrapped(kind))
    model = args_model(found)
    return name in (model.model_fields if model else keywords_of(found) or ())


def unwrapped(kind: str) -> str:
    """The environment within one whose class says, as `wraps`, which of its arguments holds another; else itself.

    Raises:
        ConfigError: there is no such environment.
    """
    inner = parse_kind(kind).args.get(getattr(_class_of(kind), "wraps", ""))
    return unwrapped(canonical_json(inner)) if isinstance(inner, dict) else kind


def served_prompt(kind: str) -> ServedPrompt | None:
    """What an environment's class does to the requests of programs that are served (its `served`); None where it has none.

    Raises:
        ConfigError: there is no such environment, or it does not take its arguments.
    """
    found = _class_of(kind)
    make: Callable[[Any], ServedPrompt] | None = getattr(found, "served", None)
    return make(arguments_of(found, kind)) if make else None


def check_told(kind: str, curated: Path) -> None:
    """Have an environment's class check what it tells policies against curated tasks (its `check_curated`), if it does.

    Raises:
        LeakError: it tells of a task outside training.
    """
    found = _class_of(kind)
    if hasattr(found, "check_curated"):
        found.check_curated(arguments_of(found, kind), curated)


def _class_of(kind: str) -> type:
    name = parse_kind(kind).kind
    return load_class("recorded" if name.startswith(PREFIX) else name, ENVIRONMENTS, "environment")


def _name_in_tasks(environment: Environment, kind: Kind) -> None:
    """Have the tasks that an environment makes name it with its arguments, so that any process makes it alike."""

    def named(found: Any) -> Any:
        if isinstance(found, list):
            return [named(task) for task in found]
        return replace(found, environment=kind.text) if isinstance(found, Task) else found

    for name in ("task_from_log", "make_tasks", "tasks_from", "variants", "task_reached"):
        if method := getattr(environment, name, None):
            setattr(environment, name, lambda *given, method=method, **more: named(method(*given, **more)))
