"""Many episodes as programs on one engine: N at a time, each with its gateway, its environment, and an end of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from tracewheel.config import RolloutConfig
from tracewheel.core.types import Trajectory
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.gateway import Gateway
from tracewheel.gateway.live_episode import Draw, LiveEpisode
from tracewheel.gateway.server import GatewayServer
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.episode import Ending, EpisodeLimits, EpisodeSpec, Opened, Stop
from tracewheel.rollout.harness.ends import PROGRAM, is_cut_off, said_state, stop_of, trajectory_of
from tracewheel.rollout.harness.folders import left_in
from tracewheel.rollout.harness.programs import ProgramEnd, Programs
from tracewheel.rollout.harness.starting import RESULT_FILE, WORKDIR, Starter
from tracewheel.rollout.harness.tool_door import ToolDoor
from tracewheel.rollout.harness.worlds import OVER, LiveWorld, WorldThreads

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine

STEP_SECONDS = 0.2
GRACE_SECONDS = 10.0  # for a program whose environment has ended the episode


@dataclass(eq=False)
class _Running:
    """An episode whose program is about to start, runs, or has ended."""

    spec: EpisodeSpec
    live: LiveEpisode
    folder: Path
    world: LiveWorld | None = None
    opened: Opened | None = None
    end: ProgramEnd | None = None
    over_since: float = 0.0  # when its environment was found to have ended it


class HarnessPool:
    """Runs episodes as programs: a `Pool`, and a context manager.

    Args:
        engine: Samples the turns; this pool's alone until it is closed.
        renderer: Of the policy's chat format.
        config: Caps, and how programs are started.

    Raises:
        ConfigError: there is no such program, script, folder, variable, or module to preload.
        InfrastructureError: a server or a process does not start.
    """

    def __init__(self, engine: Engine, renderer: ChatRenderer, config: RolloutConfig) -> None:
        assert config.harness is not None
        self._config, self._harness, self._ends = config, config.harness, renderer.end_of_turn_ids
        self._running: dict[int, _Running] = {}
        self._waiting: deque[tuple[int, EpisodeSpec]] = deque()
        self._done: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()
        self._ended: list[tuple[int, Trajectory]] = []
        with ExitStack() as made:
            self._starter = Starter(self._harness)
            self._folder = Path(
                made.enter_context(tempfile.TemporaryDirectory(prefix="tracewheel-", ignore_cleanup_errors=True))
            )
            self._programs = Programs(
                self._folder,
                self._starter.interpreter,
                preload=self._harness.preload,
                path=self._starter.module_path,
                cwd=self._starter.cwd,
                env=self._starter.base,
            )
            made.callback(self._programs.close)
            self._engine = EngineThread(engine)
            made.callback(self._engine.close)
            self._gateway = Gateway(self._engine, renderer, config)
            self._door = ToolDoor()
            sockets = self._starter.make_box(self._folder / "box")
            routes, embeddings = self._door.routes(), self._harness.embeddings
            server = made.enter_context(GatewayServer(self._gateway, routes=routes, sockets=sockets, embeddings=embeddings))
            self._gateway.address, self._loop = server.url(), server.loop
            self._threads = WorldThreads(config.tool_threads or 1, self._loop)
            made.callback(self._loop.call_soon_threadsafe, self._threads.close)
            self._made = made.pop_all()

    def __enter__(self) -> HarnessPool:
        return self

    def __exit__(self, *_: object) -> None:
        """End every program, and stop serving."""
        self._made.close()

    @property
    def open(self) -> int:
        """How many episodes have begun and were not yet returned by `step`."""
        return len(self._running) + len(self._waiting) + len(self._ended)

    @property
    def sampled(self) -> int:
        """Tokens of all turns so far, those of open episodes too."""
        return self._engine.sampled

    @property
    def cpu_seconds(self) -> float:
        """What the programs that have ended took, but for those in boxes."""
        return self._programs.cpu_seconds

    @property
    def policy_version(self) -> int:
        """The version of the policy that samples now."""
        return self._engine.policy_version

    def update_weights(self, policy: PolicyRef) -> None:
        """Continue with this policy, also under running programs: each token knows its version."""
        self._engine.call(lambda engine: engine.update_weights(policy)).result()

    def live(self, number: int) -> LiveEpisode:
        """The episode at the gateway of one that has begun."""
        return self._running[number].live

    def begin(self, number: int, spec: EpisodeSpec) -> None:
        """Begin an episode under a number that no open episode has."""
        self._waiting.append((number, spec))
        self._start_waiting()

    def step(self) -> list[tuple[int, Trajectory]]:
        """Wait for a moment; returns the episodes that have ended, perhaps none.

        Raises:
            InfrastructureError: the engine has failed, or the process that starts programs.
            TimeLimitError: too many environments hang.
        """
        for end in self._programs.poll(STEP_SECONDS):
            self._program_ended(end)
        while True:
            try:
                number, done = self._done.get_nowait()
            except Empty:
                break
            self._world_answered(number, done.result())
        self._engine.check()
        self._watch_limits()
        self._start_waiting()
        ended, self._ended = self._ended, []
        return ended

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._harness.concurrency:
            self._open(*self._waiting.popleft())

    def _open(self, number: int, spec: EpisodeSpec) -> None:
        """Open the episode at the gateway and, where there is one, its environment; its program starts after that."""
        live = self._gateway.open(Draw(spec.seed, spec.temperature, spec.greedy))
        folder = self._folder / str(number)
        folder.mkdir()
        running = _Running(spec, live, folder)
        self._running[number] = running
        if self._harness.tools == "none":
            self._start(number, running)
            return
        limits = EpisodeLimits(self._config.step_seconds, self._config.episode_seconds)
        running.world = LiveWorld(spec.task, limits, self._threads, live.turns_so_far, lambda: live.end(OVER))
        self._ask(number, self._open_world(running, running.world))

    async def _open_world(self, running: _Running, world: LiveWorld) -> Opened:
        opened = await world.open()
        self._door.add(str(running.live.number), running.live.key, world)
        return opened

    async def _end_world(self, running: _Running, world: LiveWorld, stop: Stop) -> Ending:
        self._door.remove(str(running.live.number))
        return await world.end(stop)

    def _ask(self, number: int, work: Coroutine[Any, Any, Opened | Ending]) -> None:
        """Ask an environment; `step` goes on when it has answered."""

        def answered(done: Future[Any]) -> None:
            self._done.put((number, done))
            self._programs.wake()

        asyncio.run_coroutine_threadsafe(work, self._loop).add_done_callback(answered)

    def _world_answered(self, number: int, answer: Opened | Ending) -> None:
        running = self._running[number]
        if isinstance(answer, Ending):
            self._finish(number, running, answer)
            return
        running.opened = answer
        if answer.stop is None:
            self._start(number, running)
        else:
            self._end(number, running, answer.stop)

    def _start(self, number: int, running: _Running) -> None:
        self._programs.start(number, self._starter.start(running.spec.task, running.live, running.opened, running.folder))

    def _watch_limits(self) -> None:
        """End programs that ask too much, and those that go on after their environment has ended the episode."""
        now, most = time.monotonic(), self._harness.max_requests
        for number, running in self._running.items():
            if running.live.requests_so_far() > most:
                self._programs.kill(number, f"over {most} requests (rollout.harness.max_requests)")
            if running.world and running.world.stop:
                running.over_since = running.over_since or now
                if now > running.over_since + GRACE_SECONDS:
                    self._programs.kill(number, OVER)

    def _program_ended(self, end: ProgramEnd) -> None:
        running = self._running[end.number]
        running.end = end
        self._gateway.close(running.live)
        tokens = running.live.record(self._harness.credit)
        self._end(end.number, running, stop_of(end, tokens, is_cut_off(tokens, self._config, self._ends)))

    def _end(self, number: int, running: _Running, stop: Stop) -> None:
        self._gateway.close(running.live)
        if running.world is None:
            state = left_in(running.folder / WORKDIR) if self._starter.works_in_folder else {}
            self._finish(number, running, Ending(stop, state))
        else:
            self._ask(number, self._end_world(running, running.world, stop))

    def _finish(self, number: int, running: _Running, ending: Ending) -> None:
        if ending.final_state is not None:
            said = said_state(running.end, running.folder / RESULT_FILE)
            ending = replace(ending, final_state={**ending.final_state, PROGRAM: said})
        opening = running.opened.messages if running.opened else []
        tokens = running.live.record(self._harness.credit)
        self._ended.append((number, trajectory_of(running.spec, tokens, ending, opening)))
        del self._running[number]
        shutil.rmtree(running.folder, ignore_errors=True)
