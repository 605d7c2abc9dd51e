"""What an episode changed: all that was required, nothing that was not allowed."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError, model_validator

from tracewheel.config.base import Strict
from tracewheel.core.types import Task
from tracewheel.scoring.json_equality import GONE, at_pointer, changes, same_json


class Change(Strict):
    """A required change: the place, a JSON Pointer, is `to` in the end, or `gone`."""

    path: str
    to: Any = None
    gone: bool = False

    @model_validator(mode="after")
    def _check_end(self) -> Change:
        if self.gone == ("to" in self.model_fields_set):
            raise ValueError(f"{self.path}: give either 'to' or 'gone': true")
        return self


class WantedChanges(Strict):
    """The part of a goal that the verifier reads.

    `allowed` are JSON Pointers at or below which anything may change; a part `*` stands for any one key or index.
    """

    required: tuple[Change, ...]
    allowed: tuple[str, ...] = ()


class StateDiffVerifier:
    """Compares the final state with the initial one: 1 where every required change was made and nothing else changed.

    >>> goal = {"required": [{"path": "/orders/K7/status", "to": "cancelled"}], "allowed": ["/log"]}
    >>> orders = {"K7": {"status": "open"}, "B2": {"status": "open"}}
    >>> task = Task("t1", "shop", "cancel", 1, "Cancel K7.", {"orders": orders}, goal, "state_diff", "t1")
    >>> state = {"orders": {"K7": {"status": "cancelled"}, "B2": {"status": "lost"}}, "log": ["K7"]}
    >>> StateDiffVerifier().verify(task, state)
    (0.0, {'required': 1.0, 'nothing_else': 0.0})

    Values are compared with strict types. `required` is 1 when all required changes are made, `nothing_else` when
    every leaf that differs lies at or below a required or an allowed place. Lists are compared by position.

    Raises:
        ValueError: the goal is not as above, or all that it requires is so from the start.
    """

    kind = "state_diff"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        done, clean = _compare(task, final_state)
        return float(all(done) and clean), {"required": float(all(done)), "nothing_else": float(clean)}

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The share of the required changes that are made, or 0 once anything else is changed."""
        done, clean = _compare(task, state)
        return clean * sum(done) / len(done)


def _compare(task: Task, state: dict[str, Any]) -> tuple[list[bool], bool]:
    try:
        goal = WantedChanges.model_validate({key: task.goal[key] for key in WantedChanges.model_fields if key in task.goal})
    except ValidationError as error:
        raise ValueError(f"the task's goal: {error}") from error
    if not goal.required or all(_is_made(change, task.initial_state) for change in goal.required):
        raise ValueError("the task's goal: nothing is required that is not so from the start")
    free = [change.path for change in goal.required] + list(goal.allowed)
    clean = all(any(_covers(pointer, path) for pointer in free) for path, _, _ in changes(task.initial_state, state))
    return [_is_made(change, state) for change in goal.required], clean


def _is_made(change: Change, state: Any) -> bool:
    value = at_pointer(state, change.path)
    return value is GONE if change.gone else value is not GONE and same_json(value, change.to)


def _covers(pointer: str, path: str) -> bool:
    wanted, parts = pointer.split("/"), path.split("/")
    return len(wanted) <= len(parts) and all(
        one in ("*", other) for one, other in zip(wanted, parts[: len(wanted)], strict=True)
    )
