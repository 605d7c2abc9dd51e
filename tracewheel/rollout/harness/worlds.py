"""The environments beside programs: opened, called and ended on an event loop, each call in a watched thread."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tracewheel.core.errors import TimeLimitError
from tracewheel.core.time_limits import CHECK_SECONDS, Job, WatchedThreads
from tracewheel.core.types import Task
from tracewheel.environments import Observation
from tracewheel.rollout.episode import Ending, EpisodeLimits, Marks, Opened, Stop, World

OVER = "the episode has ended"
BEFORE_ANY_TURN = 0


class WorldThreads:
    """Watched threads for an event loop, whose thread is the only one that calls the methods.

    Args:
        count: How many threads.
        loop: The loop.
    """

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = WatchedThreads(count, "world", self._notify)
        self._open: set[asyncio.Future[Any]] = set()
        self._watch: asyncio.TimerHandle | None = None

    async def do(self, job: Job) -> Any:
        """The result of a job.

        Raises:
            TimeLimitError: it took too long, or too many hang.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        job.label = future
        self._open.add(future)
        self._threads.submit([job])
        if self._watch is None:
            self._watch = self._loop.call_later(CHECK_SECONDS, self._look)
        return await asyncio.shield(future)  # whoever asked may leave; the call goes on

    def close(self) -> None:
        """Let the threads end; what hangs is not waited for."""
        if self._watch:
            self._watch.cancel()
        self._threads.close()

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before a call that hung
            self._loop.call_soon_threadsafe(self._collect)

    def _look(self) -> None:
        """Give up what takes too long, now and as long as something is open."""
        self._watch = None
        self._collect()
        if self._open:
            self._watch = self._loop.call_later(CHECK_SECONDS, self._look)

    def _collect(self) -> None:
        try:
            jobs = self._threads.done()
        except TimeLimitError as error:
            for future in self._open:
                future.set_exception(error)
            self._open.clear()
            return
        for job in jobs:
            if job.label not in self._open:
                continue
            self._open.remove(job.label)
            if job.error is not None:
                job.label.set_exception(job.error)
            else:
                job.label.set_result(job.result)


class LiveWorld:
    """The environment of one program's episode. Its calls are carried out one after the other.

    Args:
        task: The task.
        limits: How long the environment may take.
        threads: Where it is called.
        turns: How many turns the policy has had until now, to credit process rewards.
        ended: Called where the environment has ended the episode.
    """

    def __init__(
        self, task: Task, limits: EpisodeLimits, threads: WorldThreads, turns: Callable[[], int], ended: Callable[[], None]
    ) -> None:
        self._world = World(task, limits)
        self._threads, self._turns, self._ended = threads, turns, ended
        self._turn_of_one = asyncio.Lock()
        self._rewards: dict[int, float] = {}
        self.opened: Opened | None = None
        self.stop: Stop | None = None

    async def open(self) -> Opened:
        """Make the environment and reset it; an environment that fails has a `stop`."""
        try:
            self.opened = await self._do(self._world.open)
        except TimeLimitError as error:
            self.opened = Opened([], [], Stop.failed(error), replies=False)
        except Exception as error:  # a user's environment that cannot be made, as one whose reset fails
            self.opened = Opened([], [], Stop.failed(error), replies=False)
        self.stop = self.opened.stop
        return self.opened

    async def call(self, tool: str, arguments: dict[str, Any]) -> Observation:
        """Carry out a call. Once the episode has ended, an error says so."""
        return await self._observe(functools.partial(self._world.call, tool, arguments))

    async def say(self, text: str) -> Observation:
        """What the environment answers to a text, as a simulated user does; see `call`."""
        if self.opened is None or not self.opened.replies:
            return Observation("this environment does not answer texts, only calls", error=True)
        return await self._observe(functools.partial(self._world.say, text))

    async def end(self, stop: Stop) -> Ending:
        """How the episode ends: as the environment ended it, otherwise with this stop; its rewards are those of its turns."""
        async with self._turn_of_one:
            stop = self.stop or stop
            if isinstance(stop.error, TimeLimitError):  # its environment hangs: nothing more is asked of it
                return Ending(stop, None, self.marks())
            try:
                ending: Ending = await self._do(functools.partial(self._world.end, stop))
            except TimeLimitError as error:
                ending = Ending(Stop.failed(error), None)
            return Ending(ending.stop, ending.final_state, self.marks())

    def marks(self) -> tuple[Marks, ...]:
        """The process rewards by turn."""
        return tuple(Marks(self._rewards.get(turn)) for turn in range(max(self._rewards, default=-1) + 1))

    async def _observe(self, act: Callable[[], tuple[Observation, Stop | None]]) -> Observation:
        turn = max(BEFORE_ANY_TURN, self._turns() - 1)
        async with self._turn_of_one:
            if self.stop:
                return Observation(OVER, error=True, done=True)
            try:
                observation, self.stop = await self._do(act)
            except TimeLimitError as error:
                observation, self.stop = Observation("", error=True), Stop.failed(error)
            if observation.reward is not None:
                self._rewards[turn] = self._rewards.get(turn, 0.0) + observation.reward
            if self.stop:
                self._ended()
            return observation

    async def _do(self, work: Callable[[], Any]) -> Any:
        return await self._threads.do(self._world.job(work))
