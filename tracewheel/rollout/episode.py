"""The loop of one episode: reset, opening messages, turns, calls, observations, and why it stopped.

The same loop serves every kind of policy. `play` is a generator that never blocks: it yields work in the environment
or the policy's turn, and whoever drives it sends the result back. `EpisodePool` drives many episodes on one engine;
`run_alone` drives one in the caller's thread. A `Transcript` records the episode in the form that the policy reads.

An episode that goes wrong ends with a stop reason, never with an exception.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from tracewheel.core.errors import TimeLimitError
from tracewheel.core.own_code import place
from tracewheel.core.strict_json import fresh_copy
from tracewheel.core.time_limits import Job, Timer, WatchedThreads
from tracewheel.core.tracebacks import fault_of, note_call, short_traceback
from tracewheel.core.types import INFRASTRUCTURE_FAILED, Fault, StopReason, Task, canonical_json
from tracewheel.environments import (
    Environment,
    Observation,
    Replier,
    close_environment,
    make_environment,
    opening_messages,
    share_resources,
)
from tracewheel.environments.recorded.calls import is_error

Message = dict[str, Any]
# Work in the environment, which may run in a thread; None is the policy's turn.
Work = Job | None
# Stop reasons of an episode that another try may finish.
UNFINISHED = ("infrastructure_failed", "budget")
# How an episode stops with an observation that blames someone; for any other fault the machinery failed.
STOPS: dict[Fault, StopReason] = {"model": "finished", "harness": "harness_failed", "user": "user_failed"}


@dataclass(frozen=True)
class EpisodeSpec:
    """Which episode to run.

    Attributes:
        task: The task to solve.
        sample: The episode's place in its group.
        seed: Fixes its random numbers.
        temperature: Sampling temperature.
        greedy: Take the most likely token at each step; nothing is explored then.
    """

    task: Task
    sample: int
    seed: int
    temperature: float
    greedy: bool = field(default=False, kw_only=True)


class Call(NamedTuple):
    """A tool call of a turn. `malformed` is the observation that replaces carrying it out; empty for a well-formed call."""

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str = ""


class PolicyTurn(NamedTuple):
    """A turn as the environment needs it: its calls, whether a token limit cut it off, and what it says beside its thinking."""

    calls: list[Call]
    cut_off: bool
    text: str = ""


@dataclass(frozen=True)
class Stop:
    """Why an episode stopped, and whose fault it is. `error` is the exception of an environment that failed."""

    reason: StopReason | Literal["refused", "budget"]
    detail: str = ""
    error: Exception | None = field(default=None, compare=False)
    fault: Fault = ""

    @classmethod
    def failed(cls, error: Exception, fault: Fault = "environment", doing: str = "") -> Stop:
        """The stop of an exception; `fault` says whose code raised it, unless the exception says so itself.

        `doing` is the call that raised it, as in `step move_file`: a note of the traceback says so.
        """
        if doing:
            note_call(error, doing.removeprefix("step "), place(error))
        return cls(INFRASTRUCTURE_FAILED, f"{type(error).__name__}: {error}", error, fault_of(error, fault))

    @property
    def traceback(self) -> str:
        """The traceback of the exception; "" without one, and for a time limit, which is raised elsewhere."""
        return "" if self.error is None or isinstance(self.error, TimeLimitError) else short_traceback(self.error)


@dataclass(frozen=True)
class EpisodeLimits:
    """How long an environment may take: one call (`reset`, `step`, `snapshot`), and all calls of an episode together."""

    step_seconds: float | None = None
    episode_seconds: float | None = None


NO_LIMITS = EpisodeLimits()


class Marks(NamedTuple):
    """What the environment said of a turn: the sum of its process rewards, and the calls whose replies hide a failure."""

    reward: float | None = None
    errors: tuple[int, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """As stored with the turn, which has no key for what there is not."""
        reward = {} if self.reward is None else {"reward": self.reward}
        return reward | ({"errors": list(self.errors)} if self.errors else {})


@dataclass(frozen=True)
class Ending:
    """How an episode ended. `final_state` is None when the environment could not give it, or it is not JSON.

    `marks` has what the environment said of each turn.
    """

    stop: Stop
    final_state: dict[str, Any] | None
    marks: tuple[Marks, ...] = ()

    def with_marks(self, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Turns with their `reward` and `errors`, where the environment gave any."""
        marks = itertools.chain(self.marks, itertools.repeat(Marks()))
        return [turn | mark.to_record() for turn, mark in zip(turns, marks, strict=False)]


Reply = TypeVar("Reply", contravariant=True)


class Transcript(Protocol[Reply]):
    """The record of an episode in the form that one kind of policy reads and writes."""

    def open(self, messages: list[Message], tools: list[dict[str, Any]]) -> Stop | None:
        """Begin with these messages. Returns a stop when they leave no room for a turn."""
        ...

    def add_turn(self, reply: Reply) -> PolicyTurn:
        """Record the policy's reply."""
        ...

    def add_results(self, results: list[Message], *, interrupted: bool) -> None:
        """Record what followed the turn; `interrupted` when the episode stopped before the turn's last call."""
        ...

    def observe(self, results: list[Message]) -> Stop | None:
        """Make the recorded results part of the policy's context. Returns a stop when they leave no room for a turn."""
        ...


def play(
    task: Task, transcript: Transcript[Any], max_turns: int, limits: EpisodeLimits = NO_LIMITS
) -> Generator[Work, Any, Ending]:
    """Play an episode.

    Yields:
        A job to do, whose result to send, or whose error to throw; or None for the policy's turn: send what the
        transcript takes as a reply, or the `Stop` that prevented one.

    Returns:
        How the episode ended.
    """
    world = World(task, limits)
    marks: list[Marks] = []
    try:
        opening = yield world.job(world.open)
        full = transcript.open(opening.messages, opening.tools)
        stop: Stop | None = opening.stop or full
        while stop is None:
            reply = yield None
            if isinstance(reply, Stop):
                stop = reply
                break
            turn = transcript.add_turn(reply)
            marks.append(Marks())
            if turn.cut_off:
                stop = Stop("max_tokens")
            elif not turn.calls and not opening.replies:
                stop = Stop("no_tool_call")
            else:
                answered: Answered = yield world.job(functools.partial(world.answer, turn))
                results, stop, marks[-1] = answered.results, answered.stop, Marks(answered.reward, answered.errors)
                transcript.add_results(results, interrupted=stop is not None)
                if stop is None:
                    stop = Stop("max_turns") if len(marks) >= max_turns else transcript.observe(results)
        ending: Ending = yield world.job(functools.partial(world.end, stop))
    except TimeLimitError as error:  # its environment hangs: nothing more is asked of it
        return Ending(Stop.failed(error), None, tuple(marks))
    except GeneratorExit:  # whoever plays it gave up
        world.close()
        raise
    return replace(ending, marks=tuple(marks))


def run_alone(steps: Generator[Work, Any, Ending], reply: Callable[[], Any], tools: WatchedThreads | None = None) -> Ending:
    """Run a `play`.

    Args:
        steps: The episode.
        reply: Takes the policy's turn, in this thread.
        tools: Where the environment is called; None: in this thread, without time limits.
    """
    send, result = steps.send, None
    while True:
        try:
            job = send(result)
        except StopIteration as end:
            ending: Ending = end.value
            return ending
        send = steps.send
        if job is None:
            result = reply()
            continue
        if tools is None:
            result = job.work()
            continue
        tools.run([job])
        result = job.result
        if job.error is not None:
            send, result = steps.throw, job.error


class Answered(NamedTuple):
    """What followed a turn: messages up to a stop, its process reward, and the numbers of failed calls.

    A reply that begins as an error needs no mark: it says so itself.
    """

    results: list[Message]
    reward: float | None
    stop: Stop | None
    errors: tuple[int, ...] = ()


class Opened(NamedTuple):
    """How an episode opens: the messages that the policy is given first, the tools, and whether the reset failed.

    `replies`: the environment answers turns without a call.
    """

    messages: list[Message]
    tools: list[dict[str, Any]]
    stop: Stop | None
    replies: bool


class World:
    """An episode's environment. Its methods may run in a thread: they touch nothing that episodes share."""

    environment: Environment

    def __init__(self, task: Task, limits: EpisodeLimits) -> None:
        self._task = task
        self._timer = Timer(limits.step_seconds, limits.episode_seconds, ("rollout.step_seconds", "rollout.episode_seconds"))

    def job(self, work: Callable[[], Any]) -> Job:
        """Work of this environment as a job with the episode's timer."""
        return Job(work, self._timer)

    def open(self) -> Opened:
        """Make the environment and reset it; without opening messages of its own, the task's prompt opens."""
        self.environment = make_environment(self._task.environment)
        stop = None
        try:
            share_resources(self.environment, self._task.environment)  # before the timer: its first time may be long
            self._timer.begin("reset")
            self.environment.reset(self._task)
        except Exception as error:  # a user's environment may fail in any way; other episodes continue
            stop = Stop.failed(error, doing="reset")
        try:
            messages = opening_messages(self.environment, self._task)
        except Exception as error:  # as at reset
            messages, stop = [{"role": "user", "content": self._task.prompt}], stop or Stop.failed(error)
        return Opened(messages, self.environment.tools(), stop, isinstance(self.environment, Replier))

    def answer(self, turn: PolicyTurn) -> Answered:
        """Carry out a turn's calls; one without calls is answered with the user's next message."""
        return self._carry_out(turn.calls) if turn.calls else self._reply(turn.text)

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[Observation, Stop | None]:
        """Carry out one call. Returns what the environment says, and why the episode ends with it, None where it goes on."""
        # A copy: episodes with the same reply share the parsed arguments.
        return self._observed(f"step {tool}", lambda: self.environment.step(tool, fresh_copy(arguments)))

    def say(self, text: str) -> tuple[Observation, Stop | None]:
        """What the environment, a `Replier`, answers to a turn without a call; as `call`."""
        assert isinstance(self.environment, Replier)
        return self._observed("reply", functools.partial(self.environment.reply, text))

    def _observed(self, doing: str, act: Callable[[], Observation]) -> tuple[Observation, Stop | None]:
        try:
            self._timer.begin(doing)
            observation = act()
            observation.text.encode()
            observation = replace(observation, reward=_process_reward(observation, doing.removeprefix("step ")))
        except Exception as error:  # as at reset
            return Observation("", error=True), Stop.failed(error, doing=doing)
        return observation, _stop_of(observation)

    def _reply(self, text: str) -> Answered:
        observation, stop = self.say(text)
        return Answered([] if stop else [{"role": "user", "content": observation.text}], observation.reward, stop)

    def _carry_out(self, calls: list[Call]) -> Answered:
        results: list[Message] = []
        total: float | None = None
        errors: list[int] = []
        for number, call in enumerate(calls):
            stop = None
            if call.malformed:
                observation = Observation(call.malformed, error=True)
            else:
                observation, stop = self.call(call.name, call.arguments)
                if observation.reward is not None:
                    total = observation.reward + (total or 0.0)
            if observation.error and not is_error(observation.text) and (stop is None or stop.error is None):
                errors.append(number)
            if stop:
                return Answered(results, total, stop, tuple(errors))
            results.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": observation.text})
        return Answered(results, total, None, tuple(errors))

    def end(self, stop: Stop) -> Ending:
        """The ending with the final state; an environment that cannot give one has failed."""
        try:
            self._timer.begin("snapshot")
            state = self.environment.snapshot()
            canonical_json(state)  # a state that cannot be stored cannot be scored later
        except Exception as error:  # as at reset
            return Ending(stop if stop.reason in UNFINISHED else Stop.failed(error, doing="snapshot"), None)
        finally:
            self.close()
        return Ending(stop, state)

    def close(self) -> None:
        """Let the environment go."""
        if environment := getattr(self, "environment", None):
            with suppress(TimeLimitError):  # the time of the episode is spent: that is said already
                self._timer.begin("close")
            close_environment(environment)


def _stop_of(observation: Observation) -> Stop | None:
    """Why the episode ends with this observation; None where it goes on."""
    if observation.fault:
        return Stop(STOPS.get(observation.fault, INFRASTRUCTURE_FAILED), observation.text, fault=observation.fault)
    return Stop("finished") if observation.done else None


def _process_reward(observation: Observation, tool: str) -> float | None:
    """The reward of an observation.

    Raises:
        TypeError, ValueError: it is no finite number.
    """
    if observation.reward is None:
        return None
    reward = float(observation.reward)
    if not math.isfinite(reward):
        raise ValueError(f"the reward of '{tool}' is {reward}; an observation's reward is a finite number or None")
    return reward
