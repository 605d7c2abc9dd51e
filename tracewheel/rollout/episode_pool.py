"""Many episodes on one engine: turns are generated together, tools run between them.

Environments are called in watched threads, so that one that hangs ends its own episode only. With several threads the engine
generates for the other episodes meanwhile, and a slow tool delays none of them. With one, all calls that follow a step of the
engine go to it in one batch, in order, and the pool waits for them for `BATCH_WAIT_SECONDS`.
"""

from __future__ import annotations

import time
from collections import Counter
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
        in_order: Wait for each batch of calls before the engine goes on: for a single thread.
    """

    def __init__(
        self,
        engine: Engine,
        renderer: ChatRenderer,
        config: RolloutConfig,
        tools: WatchedThreads | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._config = config
        self._tools = tools
        self._in_order = in_order
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
                work.label = number
                self._to_tools.append(work)
                return
            result = work.work()

    def _use_tools(self) -> None:
        """Hand calls to the threads, and continue the episodes whose calls are done."""
        if self._tools is None:
            return
        deadline = time.monotonic() + BATCH_WAIT_SECONDS
        while self._to_tools or self._in_tools:
            jobs, self._to_tools = self._to_tools, []
            for batch in ([jobs] if jobs else []) if self._in_order else [[job] for job in jobs]:
                self._tools.submit(batch)
            self._in_tools += len(jobs)
            idle = self._engine.idle and not self._ended
            patience = deadline - time.monotonic() if self._in_order else TOOL_WAIT_SECONDS if idle else 0.0
            done = self._tools.done(patience, first=not self._in_order)
            self._in_tools -= len(done)
            for job in done:
                self._advance(job.label, job.result, job.error)
            if not self._to_tools and (not self._in_order or time.monotonic() >= deadline):
                return

    def _end(self, number: int, ending: Ending) -> None:
        running = self._running.pop(number)
        transcript = running.transcript
        self._open_in[running.environment] -= 1
        self._freed = True
        if transcript.submitted:
            self._engine.close(number)
        self._ended.append((number, transcript.trajectory(ending, self._engine.policy_version)))
