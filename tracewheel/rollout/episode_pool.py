"""Many episodes on one engine: turns are generated together, tools run between them.

A slow tool delays no other episode: with an executor, environments are reset and stepped in its threads while the
engine generates for the other episodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from tracewheel.config import RolloutConfig
from tracewheel.core.types import Trajectory
from tracewheel.rollout.episode import Ending, EpisodeSpec, Work, play
from tracewheel.rollout.token_transcript import TokenTranscript, turn_reader

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine

TOOL_WAIT_SECONDS = 0.2  # how long a step waits for tools when there is nothing else to do


@dataclass(frozen=True)
class _Running:
    """An open episode."""

    transcript: TokenTranscript
    steps: Generator[Work, Any, Ending]


class EpisodePool:
    """Runs episodes on an engine, each under a number that the caller chooses.

    Args:
        engine: Generates the turns; may be given new weights between steps.
        renderer: Of the policy's chat format.
        config: Caps and exploration.
        tools: Where environments are reset and stepped; None: in the caller's thread.
    """

    def __init__(self, engine: Engine, renderer: ChatRenderer, config: RolloutConfig, tools: Executor | None = None) -> None:
        self._engine = engine
        self._renderer = renderer
        self._config = config
        self._tools = tools
        self._read = turn_reader(renderer)
        self._running: dict[int, _Running] = {}
        self._in_tools = 0
        self._tool_results: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()
        self._ended: list[tuple[int, Trajectory]] = []

    @property
    def open(self) -> int:
        """How many episodes have begun and were not yet returned by `step`."""
        return len(self._running) + len(self._ended)

    def begin(self, number: int, spec: EpisodeSpec) -> None:
        """Begin an episode under a number that no open episode has.

        Raises:
            ConfigError: `exploration.tools` names no tool that is offered; raised by `step` when there is an executor.
        """
        transcript = TokenTranscript(spec, self._config, self._renderer, self._read)
        self._running[number] = _Running(transcript, play(spec.task, transcript, self._config.max_turns))
        self._advance(number, None)

    def step(self) -> list[tuple[int, Trajectory]]:
        """Move on; returns the episodes that have ended, perhaps none."""
        self._take_tool_results()
        if not self._engine.idle:
            for generation in self._engine.step():
                self._advance(generation.session, generation)
        ended, self._ended = self._ended, []
        return ended

    def _advance(self, number: int, result: Any) -> None:
        """Give an episode the result that it waits for, and start what it needs next."""
        running = self._running[number]
        while True:
            try:
                work = running.steps.send(result)
            except StopIteration as end:
                self._end(number, end.value)
                return
            if work is None:
                self._engine.submit(running.transcript.request(number))
                return
            if self._tools is not None:
                self._in_tools += 1
                future = self._tools.submit(work)
                future.add_done_callback(lambda done: self._tool_results.put((number, done)))
                return
            result = work()

    def _take_tool_results(self) -> None:
        """Continue the episodes whose tools are done; wait a little for one when there is nothing else to do."""
        if self._in_tools and self._engine.idle and not self._ended:
            with contextlib.suppress(Empty):
                self._take_tool_result(*self._tool_results.get(timeout=TOOL_WAIT_SECONDS))
        while not self._tool_results.empty():
            self._take_tool_result(*self._tool_results.get())

    def _take_tool_result(self, number: int, done: Future[Any]) -> None:
        self._in_tools -= 1
        self._advance(number, done.result())

    def _end(self, number: int, ending: Ending) -> None:
        transcript = self._running.pop(number).transcript
        if transcript.submitted:
            self._engine.close(number)
        self._ended.append((number, transcript.trajectory(ending, self._engine.policy_version)))
