"""The protocols of verifiers, which check the final state of an episode, or all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import model_validator

from tracewheel.chat.formats.base import split_thinking
from tracewheel.config.base import Strict
from tracewheel.core.types import Task
from tracewheel.scoring.json_equality import GONE, at_pointer
from tracewheel.scoring.verifiers.episode import Episode, Verdict


class Verifier(Protocol):
    """Checks a final state against a task's goal.

    Implementations are pure (no randomness, no clock, no memory between calls), so that scoring a stored trajectory again
    gives the same numbers. They raise on a state or a goal that they cannot check, which leaves the trajectory unscored; a
    bad episode is a low total.
    """

    kind: str

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        """The total in [0, 1], and its breakdown: one number for each check."""
        ...


@runtime_checkable
class GradedVerifier(Verifier, Protocol):
    """Optional protocol: a verifier that also measures partial progress."""

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The progress of a state towards the goal, in [0, 1], 1 when solved. Pure, like `verify`."""
        ...


@runtime_checkable
class EpisodeVerifier(Protocol):
    """A verifier that sees the whole episode: what was said, the calls with their results, and how it ended.

    It needs no `verify`. As any verifier it is pure, and may raise to leave an episode unscored. For turn rewards it also
    needs `progress`, as a `GradedVerifier` has it, since only states are known between turns.
    """

    kind: str

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        """What the episode is worth."""
        ...


@runtime_checkable
class GroupVerifier(Protocol):
    """A verifier that compares the episodes of a group, which are attempts at one task under one policy.

    Totals are relative to the group. Pure like any verifier: the order of the episodes changes nothing.
    """

    kind: str

    def verify_group(self, task: Task, episodes: Sequence[Episode]) -> Sequence[Verdict | Exception]:
        """What each episode is worth beside the others, or what leaves it unscored."""
        ...


AnyVerifier = Verifier | EpisodeVerifier | GroupVerifier


def verdict_of(verifier: AnyVerifier, task: Task, final_state: dict[str, Any], episode: Callable[[], Episode]) -> Verdict:
    """A verifier's result.

    Args:
        verifier: Any verifier.
        task: The task.
        final_state: The final state, for one that sees no more.
        episode: Makes the episode, for one that sees it.

    Raises:
        TypeError: the verifier returned something else than it should.
        ValueError: the weight is outside 0 to 1.
        Exception: whatever the verifier raises.
    """
    if isinstance(verifier, GroupVerifier):
        return checked(verifier.verify_group(task, [episode()])[0])
    if not isinstance(verifier, EpisodeVerifier):
        total, parts = verifier.verify(task, final_state)
        return Verdict(float(total), {name: float(value) for name, value in parts.items()})
    return checked(verifier.verify_episode(task, episode()))


def checked(verdict: Verdict | Exception) -> Verdict:
    """A verdict of a verifier that sees episodes, its numbers as floats.

    Raises:
        Exception: it is this in place of a verdict.
        TypeError: it is no verdict.
        ValueError: its weight is outside 0 to 1.
    """
    if isinstance(verdict, Exception):
        raise verdict
    if not isinstance(verdict, Verdict):
        raise TypeError(f"verify_episode and verify_group are to return a Verdict, this is a {type(verdict).__name__}")
    if not isinstance(verdict.answer, str) or not isinstance(verdict.explanation, str):
        raise TypeError("a Verdict's answer and explanation are text")
    parts = {str(name): float(value) for name, value in verdict.parts.items()}
    if not 0.0 <= verdict.weight <= 1.0:
        raise ValueError(f"a Verdict's weight is {verdict.weight}, outside 0 to 1")
    return Verdict(float(verdict.total), parts, verdict.answer, verdict.explanation, float(verdict.weight))


def state_progress(verifier: AnyVerifier, task: Task, state: dict[str, Any]) -> float:
    """The progress of a state towards a task's goal.

    This is the verifier's `progress` where it has one, else the mean of its parts, else its total.

    Raises:
        TypeError: the verifier judges whole episodes only.
        ValueError: it is outside [0, 1].
    """
    progress = getattr(verifier, "progress", None)
    if callable(progress):
        value = float(progress(task, state))
    elif isinstance(verifier, EpisodeVerifier | GroupVerifier):
        raise TypeError(f"verifier {verifier.kind} judges whole episodes; to judge a turn it needs progress(task, state)")
    else:
        total, parts = verifier.verify(task, state)
        value = sum(parts.values()) / len(parts) if parts else float(total)
    if not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"verifier {verifier.kind}: progress {value}, outside 0 to 1")
    return value


class ProgressVerifier:
    """The progress of the final state towards the goal, as the verifier that the task names measures it.

    >>> from tracewheel.environments.order_desk.tasks import order_desk_task
    >>> from tracewheel.scoring.verifiers.order_desk import OrderDeskVerifier
    >>> order = {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"}
    >>> orders = [order, {**order, "id": "B3", "item": "lamp"}]
    >>> goal = {"family": "open", "customer": "Mia Kent"}
    >>> task = order_desk_task("Cancel all open orders of Mia Kent.", {"orders": orders}, goal)
    >>> verifier = ProgressVerifier({"order_desk": OrderDeskVerifier()})
    >>> verifier.verify(task, {"orders": [{**order, "status": "cancelled"}, orders[1]]})
    (0.5, {})

    The total is 1 only for a solved task. As an objective it is the reward, while the task's verifier decides success:

        rubric:
          verifiers: [{kind: task}, {kind: progress}]
          objectives: [{kind: part, name: progress, part: progress}]

    Args:
        verifiers: Those that tasks name, by what they name them. A rubric has them, so it makes this one itself.

    Raises:
        TypeError: the task's verifier measures no progress.
    """

    kind = "progress"

    def __init__(self, verifiers: Mapping[str, AnyVerifier]) -> None:
        self._verifiers = verifiers

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        verifier = self._verifiers[task.verifier]
        if not isinstance(verifier, GradedVerifier):
            raise TypeError(f"verifier {verifier.kind} measures no progress")
        return state_progress(verifier, task, final_state), {}


THINKING = ("reasoning_content", "thinking", "reasoning")


class AnswerArgs(Strict):
    """Where the answer is, and where the goal holds what it should be.

    `place`: the `text` of the agent's last turn, without thinking; the final `state`, at the JSON Pointer `key`; or an argument
    of the last readable `call` of a tool, with `key` as in `answer.value`. `gold` is a key of the task's goal.
    """

    place: Literal["text", "state", "call"] = "text"
    key: str = ""
    gold: str = "answer"

    @model_validator(mode="after")
    def _check_key(self) -> AnswerArgs:
        if self.place == "call" and not all(self.key.partition(".")):
            raise ValueError("key: with place 'call' it names a tool and its argument, as in answer.value")
        if self.place == "state" and not self.key.startswith("/"):
            raise ValueError("key: with place 'state' it is a JSON Pointer, as in /answer")
        return self

    def answer(self, episode: Episode, absent: Any = GONE) -> Any:
        """The agent's answer; `absent` where it gave none."""
        if self.place == "state":
            return at_pointer(episode.final_state, self.key, absent)
        if self.place == "call":
            tool, _, name = self.key.partition(".")
            made = [call for call in episode.calls if call.name == tool and not call.malformed]
            return made[-1].arguments.get(name, absent) if made else absent
        return spoken(episode) or absent

    def wanted(self, task: Task) -> Any:
        """What the goal holds.

        Raises:
            KeyError: it has no such key; the episode stays unscored.
        """
        if self.gold not in task.goal:
            raise KeyError(f"the task's goal has no '{self.gold}', which args.gold names")
        return task.goal[self.gold]


def spoken(episode: Episode) -> str:
    """What the agent said in its last turn, without thinking that was left in the text."""
    return split_thinking(episode.final_text)[1].strip()


def has_thinking(message: dict[str, Any]) -> bool:
    """Whether an assistant message has thinking, apart or in its text."""
    return any(message.get(key) for key in THINKING) or bool(split_thinking(message.get("content") or "")[0])


def shown(answer: Any) -> str:
    """An answer for people who read the score."""
    return "" if answer is GONE else str(answer)
