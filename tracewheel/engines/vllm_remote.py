"""An `Engine` over vLLM servers: token ids in and out over HTTP, many requests at once.

A session belongs to one server by its number, so that the server's prefix cache holds its earlier turns; while that
server is away, another one takes its turns. A turn's random numbers belong to the session: a turn that is requested
again after a server died, or of another server, is the same.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tracewheel.config import EngineSections, VllmServerConfig
from tracewheel.core.errors import ConfigError
from tracewheel.engines.base import Generation, Sampling
from tracewheel.engines.vllm_base import AdapterFiles, Session, TurnRequest, VllmEngineBase
from tracewheel.engines.vllm_client import Output, VllmClient
from tracewheel.engines.vllm_server import VllmServer
from tracewheel.engines.vllm_settings import VllmSettings
from tracewheel.policy.adapters import PolicyRef, base_hash

T = TypeVar("T")
WAIT_SECONDS = 0.02
ABORT_AGAIN_SECONDS = 0.2
_servers: VllmServers | None = None
_making = threading.Lock()


def shared_servers(
    base: str, settings: VllmSettings, config: VllmServerConfig, cards: tuple[tuple[int, ...], ...] = ()
) -> VllmServers:
    """The process's connection to the servers for a base: the existing one, or a new one in its place.

    Args:
        base: The base model.
        settings: vLLM's settings.
        config: Addresses, or what to start.
        cards: The GPUs of each server to start (`placement.vllm`); one server on all that are visible by default.

    Raises:
        ConfigError: running servers were started with another base.
        InfrastructureError: a server does not start or answer.
    """
    global _servers
    with _making:
        key = (base_hash(base), settings, config, cards)
        if _servers is None or _servers.key != key:
            if _servers is not None:
                if config.servers and _servers.key[1:] == key[1:]:
                    raise ConfigError(
                        f"{base}: the servers at {', '.join(config.servers)} have one base, and a policy with all weights "
                        "trained is a base of its own: leave rollout.engine.servers out, or set learner.weights to 'lora'"
                    )
                _servers.close()
            _servers = None
            _servers = VllmServers(base, settings, config, cards)
        _servers.wake()
        return _servers


def sleep_servers() -> None:
    """Put the servers that this process has started to sleep, if they can; `shared_servers` wakes them."""
    with _making:
        if _servers is not None:
            _servers.sleep()


class VllmServers:
    """The servers of one base, and the thread of the event loop for requests to them."""

    def __init__(
        self, base: str, settings: VllmSettings, config: VllmServerConfig, cards: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        self.key = (base_hash(base), settings, config, cards)
        self._settings = settings
        self._asleep = False
        self.own = [] if config.servers else [VllmServer(base, settings, config.patience, own) for own in cards or ((),)]
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm-requests", daemon=True).start()
        try:
            with ThreadPoolExecutor(len(self.own) or 1) as pool:
                list(pool.map(VllmServer.ensure, self.own))  # together: each takes a minute
            servers = [(url, None) for url in config.servers] + [(server.url, server) for server in self.own]
            self.clients = [self.run(self._client(url, server, settings, config.patience)) for url, server in servers]
            for client in self.clients:
                self.run(client.load(None))
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    async def _client(self, url: str, server: VllmServer | None, settings: VllmSettings, patience: float) -> VllmClient:
        return VllmClient(url, settings, patience, server)

    @property
    def draws(self) -> str:
        """Who samples: `rollout.engine.draws`."""
        return self._settings.draws

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the requests' thread and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine in the requests' thread."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def load(self, policy: PolicyRef) -> AdapterFiles | None:
        """Load a policy's adapter on all servers, and check each. Returns None for a policy without one."""
        if policy.adapter is None:
            return None
        adapter = AdapterFiles.of(policy)
        if len(self.clients) == 1 or not any(self.run(self._load_everywhere(adapter))):
            self.run(self.clients[0].load(adapter))
        return adapter

    async def _load_everywhere(self, adapter: AdapterFiles) -> list[bool]:
        return await asyncio.gather(*(client.try_to_load(adapter) for client in self.clients if not client.away))

    def sleep(self) -> None:
        """Have the servers started here give their GPUs back, where `placement.share` says so."""
        if self._settings.sleeps and self.own and not self._asleep:
            for client in self.clients:
                self.run(client.sleep())
            self._asleep = True

    def wake(self) -> None:
        """Undo `sleep`."""
        if self._asleep:
            for client in self.clients:
                self.run(client.wake())
            self._asleep = False

    async def generate(self, session: int, turn: TurnRequest, adapter: AdapterFiles | None, name: str) -> Output:
        """Sample a turn on the session's server, or on another while that is away: the session's random numbers go with it.

        Raises:
            AdapterMismatchError: a server does not serve the adapter's weights.
            ConfigError: a server was started with other settings than the engine needs.
            InfrastructureError: no server comes back, or one refuses the request.
        """
        first = session % len(self.clients)
        for client in (*self.clients[first:], *self.clients[:first]):
            if client.away or len(self.clients) == 1:
                continue
            output = await client.try_to_generate(turn, adapter, name)
            if output is not None:
                return output
        return await self.clients[first].generate(turn, adapter, name)

    def close(self) -> None:
        """Stop the servers started here, and abort open requests."""
        for server in self.own:
            server.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        atexit.unregister(self.close)


@dataclass(frozen=True)
class _Answer:
    name: str
    version: int
    output: Output | Exception


class VllmServerEngine(VllmEngineBase[VllmServers]):
    """Sessions over servers."""

    def __init__(
        self,
        servers_of: Callable[[str], VllmServers],
        policy: PolicyRef,
        stop_ids: int | Iterable[int],
        sampling: Sampling,
    ) -> None:
        super().__init__(servers_of, policy, stop_ids, sampling)
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._names = (f"{uuid.uuid4().hex[:12]}-{number}" for number in itertools.count())

    def step(self) -> list[Generation]:
        """Collect what has come back, after a short wait for the first.

        Raises:
            InfrastructureError: a server does not come back, or refuses a request.
        """
        if self._running and not self._ended:
            for session in self._collect():
                self._send(session)
        ended, self._ended = self._ended, []
        return ended

    def _send(self, session: Session) -> None:
        policy, name = session.policy or self._policy, next(self._names)
        self._running[name] = session
        turn = session.rest_of_turn(self._sampling, self._stop_ids)
        work = self._backend.generate(session.number, turn, self._adapters[policy], name)
        self._backend.begin(_answer(name, policy.version, work, self._answers))

    def _cancel(self, names: list[str]) -> None:
        for name in names:
            del self._running[name]
            for client in self._backend.clients:
                self._backend.begin(client.abort([name]))

    def _interrupt(self) -> list[Session]:
        own = {name: session for name, session in self._running.items() if session.policy is None}
        interrupted: list[Session] = []
        while left := [name for name in own if name in self._running]:
            for client in self._backend.clients:
                self._backend.run(client.abort(left))  # whichever has them
            until = time.monotonic() + ABORT_AGAIN_SECONDS
            while time.monotonic() < until and any(name in self._running for name in left):
                interrupted += self._collect()
        return interrupted

    def _collect(self) -> list[Session]:
        """Take in all answers so far, after a short wait for the first; returns sessions whose turns were interrupted."""
        interrupted: list[Session] = []
        try:
            answer = self._answers.get(timeout=WAIT_SECONDS)
            while True:
                interrupted += self._take_in(answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            return interrupted

    def _take_in(self, answer: _Answer) -> list[Session]:
        session = self._running.pop(answer.name, None)
        if session is None:
            return []  # it was closed
        if isinstance(answer.output, Exception):
            raise answer.output
        session.extend(answer.output.token_ids, answer.output.logprobs, answer.version)
        if answer.output.aborted and session.tokens_left and not session.stopped(self._stop_ids):
            return [session]
        self._ended.append(session.generation(self._stop_ids))
        return []


async def _answer(name: str, version: int, work: Coroutine[Any, Any, Output], answers: queue.SimpleQueue[_Answer]) -> None:
    output: Output | Exception
    try:
        output = await work
    except Exception as error:  # raised again where the engine is stepped
        output = error
    answers.put(_Answer(name, version, output))


def make(
    config: EngineSections, policy: PolicyRef, stop_ids: frozenset[int], sampling: Sampling, slots: int
) -> VllmServerEngine:
    """The engine that a profile configures; see `engines.making`."""
    engine, settings, cards = config.rollout.engine, VllmSettings.of(config), config.placement.vllm
    assert isinstance(engine, VllmServerConfig)
    return VllmServerEngine(lambda base: shared_servers(base, settings, engine, cards), policy, stop_ids, sampling)
