"""Many episodes on one engine: turns are generated together, tools run between them.

A slow tool holds up nobody: with an executor, environments are reset and stepped in its threads while the
engine goes on with the episodes that have something to say.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from tracewheel.chat.hermes import ParsedTurn
from tracewheel.config import RolloutConfig
from tracewheel.core.types import Task, Trajectory
from tracewheel.engines.base import Request
from tracewheel.rollout.live_episode import LiveEpisode

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine, Generation

LONGEST_WAIT = 0.2  # seconds that a step waits for tools when there is nothing else to do
READ_TURNS = 65536


class EpisodeLoop:
    """Runs episodes on an engine, each under a number of the caller's.

    Args:
        engine: Generates the turns; may be given new weights between steps.
        renderer: Of the policy's chat format.
        config: Caps, temperature, exploration.
        tools: Where environments are reset and stepped; None: in the caller's thread.
    """

    def __init__(self, engine: Engine, renderer: ChatRenderer, config: RolloutConfig, tools: Executor | None = None) -> None:
        self._engine = engine
        self._renderer = renderer
        self._config = config
        self._tools = tools
        self._read = functools.lru_cache(maxsize=READ_TURNS)(functools.partial(_read_turn, renderer))
        self._episodes: dict[int, LiveEpisode] = {}
        self._away = 0
        self._returned: SimpleQueue[tuple[int, Callable[[int, Any], None], Future[Any]]] = SimpleQueue()
        self._ended: list[tuple[int, Trajectory]] = []
        self._open = 0

    @property
    def open(self) -> int:
        """How many episodes have begun, and were not yet handed out as ended."""
        return self._open

    def begin(self, number: int, task: Task, *, sample: int, seed: int, temperature: float | None = None) -> None:
        """Begin an episode.

        Args:
            number: What it is called; not that of an open episode.
            task: What is to be done.
            sample: Its place in its group.
            seed: Fixes its random numbers.
            temperature: What it is sampled at; None: the config's.

        Raises:
            ConfigError: `exploration.tools` names no tool that is offered; from `step`, when there is an executor.
        """
        heat = self._config.temperature if temperature is None else temperature
        self._open += 1
        episode = self._episodes[number] = LiveEpisode(task, sample, seed, heat, self._config, self._renderer)
        self._do(number, self._opened, episode.reset)

    def step(self) -> list[tuple[int, Trajectory]]:
        """Move on; returns the episodes that have ended, perhaps none."""
        self._take_back()
        if not self._engine.idle:
            for generation in self._engine.step():
                self._take_turn(generation)
        ended, self._ended = self._ended, []
        self._open -= len(ended)
        return ended

    def _do(self, number: int, then: Callable[[int, Any], None], work: Callable[..., Any], *arguments: Any) -> None:
        """Have some work done, and go on with what it came to: at once, or in a later step."""
        if self._tools is None:
            then(number, work(*arguments))
        else:
            self._away += 1
            future = self._tools.submit(work, *arguments)
            future.add_done_callback(lambda done: self._returned.put((number, then, done)))

    def _take_back(self) -> None:
        """Go on with the episodes whose tools are done; wait a little for one when there is nothing else to do."""
        if self._away and self._engine.idle and not self._ended:
            with contextlib.suppress(Empty):
                self._go_on(*self._returned.get(timeout=LONGEST_WAIT))
        while not self._returned.empty():
            self._go_on(*self._returned.get())

    def _go_on(self, number: int, then: Callable[[int, Any], None], done: Future[Any]) -> None:
        self._away -= 1
        then(number, done.result())

    def _opened(self, number: int, _: None) -> None:
        episode = self._episodes[number]
        episode.open()
        if episode.stop_reason:
            self._end(number)
            return
        episode.begin_turn()
        self._engine.submit(Request(number, list(episode.ids), episode.turn_budget(), episode.seed, episode.temperature))

    def _take_turn(self, generation: Generation) -> None:
        number = generation.session
        episode = self._episodes[number]
        said = (*episode.forced_ids(), *generation.token_ids)
        parsed = episode.take_turn(generation, self._read(said))
        if parsed is None:
            self._close(number)
        else:
            self._do(number, self._heard, episode.carry_out, parsed)

    def _heard(self, number: int, replies: list[dict[str, Any]]) -> None:
        episode = self._episodes[number]
        observed = episode.observe(replies)
        if observed is None:
            self._close(number)
            return
        self._engine.submit(Request(number, observed + episode.begin_turn(), episode.turn_budget()))

    def _close(self, number: int) -> None:
        self._engine.close(number)
        self._end(number)

    def _end(self, number: int) -> None:
        self._ended.append((number, self._episodes.pop(number).trajectory(self._engine.policy_version)))


def _read_turn(renderer: ChatRenderer, ids: tuple[int, ...]) -> tuple[str, ParsedTurn]:
    spoken = list(ids[:-1]) if ids[-1] == renderer.end_of_turn_id else list(ids)
    text = renderer.decode(spoken)
    return text, renderer.parse(text)
