"""Sub-goal checkpoints of an episode, each passed or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from tracewheel import Count, Episode, EpisodeCall, Strict, Task, Verdict, at_pointer, same_json

_NOTHING = object()


class CallPattern(Strict):
    """Calls of a tool that have these arguments, others beside them; only those that succeeded, unless `failed_too`."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    failed_too: bool = False

    def fits(self, call: EpisodeCall) -> bool:
        if call.name != self.tool or call.malformed or (call.error and not self.failed_too):
            return False
        return all(name in call.arguments and same_json(call.arguments[name], value) for name, value in self.args.items())


class CalledCheck(CallPattern):
    """Such a call was made, at least and at most so often."""

    kind: Literal["called"]
    name: str
    at_least: Annotated[int, Field(ge=0)] = 1
    at_most: Annotated[int, Field(ge=0)] | None = None

    def passed(self, episode: Episode) -> bool:
        count = sum(self.fits(call) for call in episode.calls)
        return self.at_least <= count and (self.at_most is None or count <= self.at_most)


class BeforeCheck(Strict):
    """The first call of one sort was made before the first of another, and both were made."""

    kind: Literal["before"]
    name: str
    first: CallPattern
    then: CallPattern

    def passed(self, episode: Episode) -> bool:
        places = [
            next((place for place, call in enumerate(episode.calls) if pattern.fits(call)), None)
            for pattern in (self.first, self.then)
        ]
        return places[0] is not None and places[1] is not None and places[0] < places[1]


class StateCheck(Strict):
    """The final state is `equals` at a JSON Pointer, or has nothing there with `gone`."""

    kind: Literal["state"]
    name: str
    path: str
    equals: Any = None
    gone: bool = False

    def passed(self, episode: Episode) -> bool:
        value = at_pointer(episode.final_state, self.path, _NOTHING)
        return value is _NOTHING if self.gone else value is not _NOTHING and same_json(value, self.equals)


class TurnsCheck(Strict):
    """The agent took at most so many turns."""

    kind: Literal["turns"]
    name: str
    at_most: Count

    def passed(self, episode: Episode) -> bool:
        return episode.turns <= self.at_most


Check = Annotated[CalledCheck | BeforeCheck | StateCheck | TurnsCheck, Field(discriminator="kind")]
CHECKS: TypeAdapter[tuple[Check, ...]] = TypeAdapter(Annotated[tuple[Check, ...], Field(min_length=1)])


class ProcessChecksArgs(Strict):
    """The checks; without any the task's goal holds them, under `checks`."""

    checks: tuple[Check, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> ProcessChecksArgs:
        _distinct(self.checks)
        return self


class ProcessChecksVerifier:
    """The share of the checks that an episode passes; each is a part of the breakdown, 0 or 1.

    >>> from tracewheel import episode_from
    >>> checks = [{"kind": "called", "name": "looked", "tool": "find"}, {"kind": "called", "name": "paid", "tool": "pay"}]
    >>> task = Task("t1", "shop", "pay", 1, "Pay it.", {}, {"checks": checks}, "process_checks", "t1")
    >>> call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"order": "K7"}'}}
    >>> reply = {"role": "tool", "tool_call_id": "c", "name": "find", "content": "K7 open"}
    >>> episode = episode_from([{"role": "assistant", "content": None, "tool_calls": [call]}, reply], 0, {})
    >>> verdict = ProcessChecksVerifier().verify_episode(task, episode)
    >>> verdict.total, verdict.parts
    (0.5, {'looked': 1.0, 'paid': 0.0})

    Checks see calls and the final state, never what the agent says of them. They are for shaping: give the outcome a
    verifier of its own.

    Raises:
        ValueError: the goal's checks are no checks.
    """

    kind = "process_checks"
    Args = ProcessChecksArgs

    def __init__(self, args: ProcessChecksArgs | None = None) -> None:
        self._checks = args.checks if args else ()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        parts = {check.name: float(check.passed(episode)) for check in self._checks or _of_goal(task)}
        missed = ", ".join(name for name, passed in parts.items() if not passed)
        return Verdict(sum(parts.values()) / len(parts), parts, explanation=f"not passed: {missed}" if missed else "")


def _of_goal(task: Task) -> tuple[Check, ...]:
    try:
        checks = CHECKS.validate_python(task.goal.get("checks", ()))
    except ValidationError as error:
        raise ValueError(f"the task's goal, checks: {error}") from error
    _distinct(checks)
    return checks


def _distinct(checks: Sequence[Check]) -> None:
    names = [check.name for check in checks]
    if len(set(names)) < len(names):
        raise ValueError(f"checks need distinct names, not {', '.join(names)}")
