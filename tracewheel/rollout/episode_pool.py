"""Many episodes on one engine: turns are generated together, tools run between them.

Environments are called in watched threads, so that one that hangs ends its own episode only. With one thread, all calls that
follow a step of the engine go to it in one batch, in order, and the pool waits for them for `BATCH_WAIT_SECONDS`. With several
it is the same while calls are quick, so that passes have the same sessions, and the same rounding, each time. When they turn
out to be slow, the engine generates for the other episodes meanwhile, and a slow tool delays none of them.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tracewheel.chat.conversation import turn_reader
from tracewheel.config import RolloutConfig
from tracewheel.core.time_limits import Job, WatchedThreads
from tracewheel.core.types import Trajectory
from tracewheel.environments import most_episodes
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.episode import Ending, EpisodeLimits, EpisodeSpec, Work, play
from tracewheel.rollout.token_transcript import TokenTranscript

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine

TOOL_WAIT_SECONDS = 0.2  # how long a step waits for tools when there is nothing else to do
QUICK_SECONDS, WAITS = 0.4, 16  # calls for which the engine waits longer than this in so many steps are slow
IDLE_SECONDS = 2.0  # as `QUICK_SECONDS`, in one step before which the engine has nothing to do
BATCH_WAIT_SECONDS = 5.0  # how long generation waits for the batch of a single thread; less than what makes a worker seem dead


class Pool(Protocol):
    """Runs episodes on an engine, each under a number that the caller chooses."""

    @property
    def open(self) -> int:
        """How many episodes have begun and were not yet returned by `step`."""
        ...

    @property
    def sampled(self) -> int:
        """Tokens of all turns so far, those of open episodes too."""
        ...

    @property
    def policy_version(self) -> int:
        """The version of the policy that samples now."""
        ...

    def begin(self, number: int, spec: EpisodeSpec) -> None:
        """Begin an episode under a number that no open episode has."""
        ...

    def step(self) -> list[tuple[int, Trajectory]]:
        """Move on; returns the episodes that have ended, perhaps none."""
        ...

    def update_weights(self, policy: PolicyRef) -> None:
        """Continue with this policy; see `Engine`."""
        ...


@dataclass(frozen=True)
class _Running:
    """An open episode."""

    environment: str
    transcript: TokenTranscript
    steps: Generator[Work, Any, Ending]


class EpisodePool:
    """Runs episodes on an engine, each under a number that the caller chooses.

    Args:
        engine: Generates the turns; may be given new weights between steps.
        renderer: Of the policy's chat format.
        config: Caps and exploration.
        tools: Where environments are called; None: in the caller's thread, without time limits.
        alone: There is a single thread: calls are made one after the other, in order, however long they take.
    """

    def __init__(
        self,
        engine: Engine,
        renderer: ChatRenderer,
        config: RolloutConfig,
        tools: WatchedThreads | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._config = config
        self._tools = tools
        self._alone = alone
        self._in_order = True
        self._waits: deque[float] = deque(maxlen=WAITS)  # how long the engine waited for calls in its last steps
        self._sequence = itertools.count()  # of calls
        self._read = turn_reader(renderer)
        self._running: dict[int, _Running] = {}
        self._to_tools: list[Job] = []
        self._in_tools = 0
        self._ended: list[tuple[int, Trajectory]] = []
        self._open_in: Counter[str] = Counter()
        self._freed = False  # whether an episode has ended since those held were looked at
        self._held: list[tuple[int, EpisodeSpec]] = []  # of environments with as many open episodes as they take
        self._sampled = 0

    @property
    def open(self) -> int:
        """How many episodes have begun and were not yet returned by `step`."""
        return len(self._running) + len(self._ended) + len(self._held)

    @property
    def sampled(self) -> int:
        """Tokens of all turns so far, those of open episodes too."""
        return self._sampled

    @property
    def policy_version(self) -> int:
        """The version of the policy that samples now."""
        return self._engine.policy_version

    def update_weights(self, policy: PolicyRef) -> None:
        """Continue with this policy; see `Engine`."""
        self._engine.update_weights(policy)

    def begin(self, number: int, spec: EpisodeSpec) -> None:
        """Begin an episode under a number that no open episode has.

        Raises:
            ConfigError: `exploration.tools` names no tool that is offered; raised by `step` when there is an executor.
        """
        most = most_episodes(spec.task.environment)
        if most is not None and self._open_in[spec.task.environment] >= most:
            self._held.append((number, spec))
            return
        self._open_in[spec.task.environment] += 1
        transcript = TokenTranscript(spec, self._config, self._renderer, self._read)
        limits = EpisodeLimits(self._config.step_seconds, self._config.episode_seconds)
        self._running[number] = _Running(
            spec.task.environment, transcript, play(spec.task, transcript, self._config.max_turns, limits)
        )
        self._advance(number, None)

    def step(self) -> list[tuple[int, Trajectory]]:
        """Move on; returns the episodes that have ended, perhaps none.

        Raises:
            TimeLimitError: too many environments hang.
        """
        if self._freed:
            self._freed, held, self._held = False, self._held, []
            for number, spec in held:
                self.begin(number, spec)
        self._use_tools()
        if not self._engine.idle:
            for generation in self._engine.step():
                self._sampled += len(generation.token_ids)
                self._advance(generation.session, generation)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Let the environments of open episodes go."""
        for running in self._running.values():
            running.steps.close()

    def _advance(self, number: int, result: Any, error: BaseException | None = None) -> None:
        """Give an episode the result that it waits for, or the error instead, and start what it needs next."""
        running = self._running[number]
        while True:
            try:
                work: Work = running.steps.throw(error) if error else running.steps.send(result)
            except StopIteration as end:
                self._end(number, end.value)
                return
            error = None
            if work is None:
                self._engine.submit(running.transcript.request(number))
                return
            if self._tools is not None:
                work.label = (next(self._sequence), number)
                self._to_tools.append(work)
                return
            result = work.work()

    def _use_tools(self) -> None:
        """Hand calls to the threads, and continue the episodes whose calls are done."""
        if self._tools is None:
            return
        begun, idle = time.monotonic(), self._engine.idle
        deadline = begun + self._patience(idle)
        while self._to_tools or self._in_tools:
            jobs, self._to_tools = self._to_tools, []
            for batch in ([jobs] if jobs else []) if self._alone else [[job] for job in jobs]:
                self._tools.submit(batch)
            self._in_tools += len(jobs)
            if self._in_order:
                done = self._tools.done(deadline - time.monotonic())
            else:
                nothing_else = self._engine.idle and not self._ended
                done = self._tools.done(TOOL_WAIT_SECONDS if nothing_else else 0.0, first=True)
            self._in_tools -= len(done)
            for job in sorted(done, key=lambda job: job.label):
                self._advance(job.label[1], job.result, job.error)
            if not self._to_tools and (not self._in_order or time.monotonic() >= deadline):
                break
        if self._in_order and not self._alone:
            if not idle:
                self._waits.append(time.monotonic() - begun)
            self._in_order = not self._in_tools and sum(self._waits) < QUICK_SECONDS

    def _patience(self, idle: bool) -> float:
        """How long the engine may wait for calls in their order; an idle one loses less."""
        if self._alone:
            return BATCH_WAIT_SECONDS
        return IDLE_SECONDS if idle else QUICK_SECONDS - sum(self._waits)

    def _end(self, number: int, ending: Ending) -> None:
        running = self._running.pop(number)
        transcript = running.transcript
        self._open_in[running.environment] -= 1
        self._freed = True
        if transcript.submitted:
            self._engine.close(number)
        self._ended.append((number, transcript.trajectory(ending, self._engine.policy_version)))
