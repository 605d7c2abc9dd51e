"""The logs' calls carried out again in the environment of a profile: what they answer, what they score, how long they take."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.own_code import OwnCodeError, place, reason
from tracewheel.core.types import Trace
from tracewheel.curation.agreement import GOOD_AGREEMENT
from tracewheel.curation.replay import Replay, replay_trace
from tracewheel.environments import Observation, Refusal, open_environment
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.operations.preflight.line import FEW, Line, Looked, State, counted
from tracewheel.rollout.rollout import with_threads

SECONDS = 2.5  # for all replays
SLOW_CALL = 0.1  # seconds
FEW_CALLS = 0.1  # of the logged calls: so many mistakes are usual


def check_replays(looked: Looked) -> Iterator[Line]:
    kind = looked.config.environment.spec
    if kind.startswith(RECORDED) or not looked.traces:
        yield Line(
            "replays", "skipped", "a recorded world compares attempts instead" if looked.traces else "no trace to replay"
        )
        return
    dropped: Counter[str] = Counter()
    first: dict[str, Trace] = {}
    calls, raises = _Calls(), False
    began = time.monotonic()
    with open_environment(kind) as environment:
        with contextlib.suppress(AttributeError):  # a class with slots
            environment.step = calls.watched(environment.step)  # type: ignore[method-assign]
        for trace in looked.traces:
            if time.monotonic() - began > SECONDS:
                break
            try:
                replay = replay_trace(trace, environment)
            except Exception as error:
                said = reason(error)
                raises = raises or isinstance(error, OwnCodeError) or not isinstance(error, DataError)
                dropped[said] += 1
                first.setdefault(said, trace)
                continue
            looked.replays.append((trace, replay))
            if replay.task.id not in {task.id for task in looked.tasks}:
                looked.tasks.append(replay.task)
    replays = [replay for _, replay in looked.replays]
    # A class that fails at each of these will fail at the others; a log may have other agents' traces first.
    yield _agreement(replays, dropped, first, "error" if raises else looked.worst)
    yield from _outcomes(replays, looked.worst)
    yield from calls.refused()
    config = looked.config
    yield from _slow_tools(calls.took, with_threads(config.rollout, [kind], config.episodes_per_iteration).tool_threads)


@dataclass
class _Calls:
    """The calls of a log as they are carried out again.

    Attributes:
        took: The seconds of each, by tool.
        answered: Those that no tool took, or whose exception is the tool's answer, by reason and tool.
        raised: Those whose exception ends an episode, by exception, tool and line.
    """

    took: dict[str, list[float]] = field(default_factory=dict)
    answered: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)

    def watched(self, step: Callable[..., Observation]) -> Callable[..., Observation]:
        def call(tool: str, args: dict[str, Any]) -> Observation:
            began = time.monotonic()
            try:
                observation = step(tool, args)
            except Exception as error:
                self.raised[f"{type(error).__name__} in {tool[:64]}{f' ({where})' if (where := place(error)) else ''}"] += 1
                raise
            finally:
                self.took.setdefault(tool, []).append(time.monotonic() - began)
            if isinstance(observation, Refusal):
                self.answered[f"{tool[:64]}, {observation.why}"] += 1
            return observation

        return call

    def refused(self) -> Iterator[Line]:
        """What the contract makes of mistaken calls and of exceptions (docs/your-environment.md)."""
        total = sum(map(len, self.took.values()))
        if self.raised:
            most, count = self.raised.most_common(1)[0]
            yield Line(
                "exceptions",
                "warning",
                f"step raises at {self.raised.total()} of {counted(total, 'logged call')}, {count} by {most}: such an episode "
                "fails through the fault of the environment, and has no score",
                "mend the class; where it is the tool's answer to the agent, raise ToolError, or set `exceptions` on the class",
            )
        if self.answered:
            most, count = self.answered.most_common(1)[0]
            yield Line(
                "calls",
                "warning" if self.answered.total() > FEW_CALLS * total else "ok",
                f"{self.answered.total()} of {counted(total, 'logged call')} are answered as errors, {count} of {most}: in an "
                "episode that is the policy's mistake, and scored",
                "where the agent's tools took such calls, widen the names and schemas of `tools`, or mend the class",
            )


def _slow_tools(took: dict[str, list[float]], threads: int) -> Iterator[Line]:
    means = {tool: sum(seconds) / len(seconds) for tool, seconds in took.items()}
    slow = {tool: mean for tool, mean in means.items() if mean > SLOW_CALL * max(threads, 1)}
    if slow:
        said = ", ".join(f"{tool} ({mean:.2f} s)" for tool, mean in sorted(slow.items()))
        yield Line(
            "tools",
            "warning",
            f"a call takes long: {said}; an iteration of 64 episodes with 5 such calls spends "
            f"{64 * 5 * max(slow.values()) / 60 / max(threads, 1):.1f} minutes on them",
            f"{threads} threads make them; make them faster"
            if threads > 1
            else "set rollout.tool_threads, or no tool_threads on the class, so that calls of several episodes run at once",
        )


def _agreement(replays: list[Replay], dropped: Counter[str], first: dict[str, Trace], worst: State) -> Line:
    agree = [replay for replay in replays if not replay.observation_drift]
    total = len(replays) + dropped.total()
    says = f"{len(agree)} of {counted(total, 'trace')} are answered as logged"
    if dropped:
        reason, count = dropped.most_common(1)[0]
        record = f"{first[reason].source_file}:{first[reason].source_line}"
        state: State = "warning" if replays else worst
        return Line("replays", state, f"{says}; {count} give no task: {reason} (first: {record})", "mend the class or the log")
    if len(agree) < GOOD_AGREEMENT * total:
        difference = next(replay.difference for replay in replays if replay.observation_drift)
        return Line(
            "replays", "warning", f"{says}; first difference: {difference}", "mend the environment: what it answers now"
        )
    return Line("replays", "ok", says)


def _outcomes(replays: list[Replay], worst: State) -> Iterator[Line]:
    scored = [replay for replay in replays if replay.success is not None]
    if not replays:
        return
    if not scored:
        why = Counter(replay.unscored for replay in replays).most_common(1)[0][0]
        yield Line(
            "outcomes", "error" if len(replays) >= FEW else worst, f"no episode can be scored: {why}", "mend the verifier"
        )
        return
    wins = sum(replay.success == 1.0 for replay in scored)
    says = f"{wins} of {counted(len(scored), 'episode')} succeed by the verifier"
    failed = Counter(replay.unscored for replay in replays if replay.unscored)
    if failed:
        why, count = failed.most_common(1)[0]
        yield Line(
            "outcomes", "warning", f"{says}; {count} more have no score: {why}", "mend the class: nothing is learnt from these"
        )
    elif not wins:
        yield Line("outcomes", "warning", says, "is the verifier too strict? Without a success there is no warm start")
    elif wins == len(scored):
        yield Line("outcomes", "warning", says, "is the verifier too mild? Where nothing fails there is nothing to learn")
    else:
        yield Line("outcomes", "ok", says)
