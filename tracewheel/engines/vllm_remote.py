"""An `Engine` over vLLM servers: token ids in and out over HTTP, many requests at once.

A session belongs to one server by its number, so that the server's prefix cache holds its earlier turns. A
turn's random numbers belong to the session: a turn that is asked for again after a server died says the same.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from tracewheel.config import VllmServerConfig
from tracewheel.core.errors import ConfigError
from tracewheel.engines.adapter_files import AdapterFiles
from tracewheel.engines.base import Generation, Request, Sampling
from tracewheel.engines.sessions import Session
from tracewheel.engines.vllm_client import Said, VllmClient
from tracewheel.engines.vllm_server import VllmServer
from tracewheel.engines.vllm_settings import VllmSettings
from tracewheel.policy.adapters import PolicyRef, base_hash

T = TypeVar("T")
WAIT_SECONDS = 0.02
ABORT_AGAIN_SECONDS = 0.2
_servers: VllmServers | None = None
_making = threading.Lock()


def shared_servers(base: str, settings: VllmSettings, config: VllmServerConfig) -> VllmServers:
    """The process's connection to the servers for a base: the one that there is, or a new one in its place.

    Raises:
        ConfigError: running servers are to serve another base than they were started with.
        InfrastructureError: a server does not start or answer.
    """
    global _servers
    with _making:
        key = (base_hash(base), settings, config)
        if _servers is None or _servers.key != key:
            if _servers is not None:
                if config.servers and _servers.key[1:] == key[1:]:
                    raise ConfigError(
                        f"{base}: the servers at {', '.join(config.servers)} have one base, and policies all of whose "
                        "weights are trained are bases of their own: leave rollout.engine.servers out, or set learner.weights "
                        "to 'lora'"
                    )
                _servers.close()
            _servers = None
            _servers = VllmServers(base, settings, config)
        return _servers


class VllmServers:
    """The servers of one base, and the thread in which requests to them wait."""

    def __init__(self, base: str, settings: VllmSettings, config: VllmServerConfig) -> None:
        self.key = (base_hash(base), settings, config)
        self.own = None if config.servers else VllmServer(base, settings, config.patience)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm-requests", daemon=True).start()
        try:
            if self.own is not None:
                self.own.ensure()
            addresses = config.servers if self.own is None else (self.own.url,)
            self.clients = [self.run(self._client(url, settings, config.patience)) for url in addresses]
            for client in self.clients:
                self.run(client.load(None))
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    async def _client(self, url: str, settings: VllmSettings, patience: float) -> VllmClient:
        return VllmClient(url, settings, patience, self.own)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the thread of the requests, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the thread of the requests."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def load(self, policy: PolicyRef) -> AdapterFiles | None:
        """Bring a policy's adapter to all servers, each of which is checked."""
        if policy.adapter is None:
            return None
        adapter = AdapterFiles.of(policy)
        for client in self.clients:
            self.run(client.load(adapter))
        return adapter

    def close(self) -> None:
        """End what was started here. Requests on the way are given up."""
        if self.own is not None:
            self.own.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        atexit.unregister(self.close)


@dataclass(frozen=True)
class _Answer:
    name: str
    said: Said | Exception


class VllmServerEngine:
    """Sessions over servers that are shared with other engines of the process.

    Args:
        servers_of: The servers for a base model.
        policy: Who speaks.
        stop_id: The token that ends a turn; it belongs to the turn.
        sampling: How tokens are chosen.

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base, or is not what a server serves.
        ConfigError: a server was started with other settings than are needed.
        InfrastructureError: a server does not start or answer.
    """

    def __init__(self, servers_of: Callable[[str], VllmServers], policy: PolicyRef, stop_id: int, sampling: Sampling) -> None:
        self._servers_of = servers_of
        self._policy, self.policy_version = policy, policy.version
        self._servers = servers_of(policy.base)
        self._adapters: dict[PolicyRef, AdapterFiles | None] = {policy: self._servers.load(policy)}
        self._stop_id = stop_id
        self._sampling = sampling
        self._sessions: dict[int, Session] = {}
        self._running: dict[str, tuple[Session, PolicyRef]] = {}
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._ended: list[Generation] = []
        self._names = (f"{uuid.uuid4().hex[:12]}-{number}" for number in itertools.count())

    @property
    def idle(self) -> bool:
        """Whether no turn is being spoken, and none that has ended is left to be fetched."""
        return not self._running and not self._ended

    def submit(self, request: Request) -> None:
        """Queue a turn; raises as the constructor does where the request names a policy of its own."""
        session = self._sessions.get(request.session)
        if session is None:
            if request.policy is not None and request.policy not in self._adapters:
                if request.policy.base != self._policy.base:
                    raise ConfigError(
                        f"{request.policy.base}: policies that speak at once need one base; the engine's is {self._policy.base}"
                    )
                self._adapters[request.policy] = self._servers.load(request.policy)
            session = self._sessions[request.session] = Session.open(request, self._sampling)
        session.begin_turn(request)
        self._send(session)

    def step(self) -> list[Generation]:
        """Take in what has come back; waits a little where nothing has.

        Raises:
            InfrastructureError: a server does not come back, or refuses a request.
        """
        if self._running and not self._ended:
            self._take_in(WAIT_SECONDS)
        ended, self._ended = self._ended, []
        return ended

    def close(self, session: int) -> None:
        """Forget a session, in the middle of a turn too."""
        self._sessions.pop(session)
        names = [name for name, (running, _) in self._running.items() if running.number == session]
        for name in names:
            del self._running[name]
            self._servers.begin(self._client(session).abort([name]))
        self._ended = [generation for generation in self._ended if generation.session != session]

    def update_weights(self, policy: PolicyRef) -> None:
        """Go on with this policy; see `Engine`. Turns under way are stopped, and go on behind what they have said.

        Raises:
            AdapterMismatchError: the adapter belongs to another base, or is not what a server serves.
            ConfigError: it is of another base, while sessions have policies of their own on this one.
            InfrastructureError: a server does not come back.
        """
        if policy == self._policy:
            return
        if policy.base != self._policy.base and any(session.policy for session in self._sessions.values()):
            raise ConfigError(f"{policy.base}: another base cannot come while sessions have policies of their own on the old")
        # First, so that the check of the new weights waits for nothing, and no more is said by the old.
        interrupted = self._interrupt()
        try:
            if policy.base != self._policy.base:
                self._servers = self._servers_of(policy.base)
            self._adapters[policy] = self._servers.load(policy)
            if not any(session.policy == self._policy for session in self._sessions.values()):
                del self._adapters[self._policy]
            self._policy, self.policy_version = policy, policy.version
        finally:
            for session in interrupted:
                self._send(session)

    def _interrupt(self) -> list[Session]:
        """Stop the turns of the engine's own policy; the sessions of those that have not ended."""
        waiting = {name: session for name, (session, _) in self._running.items() if session.policy is None}
        cut: list[Session] = []
        while left := [name for name in waiting if name in self._running]:
            for client in self._servers.clients:
                self._servers.run(client.abort([name for name in left if self._client(waiting[name].number) is client]))
            until = time.monotonic() + ABORT_AGAIN_SECONDS
            while time.monotonic() < until and any(name in self._running for name in left):
                cut += self._take_in(WAIT_SECONDS, resume=False)
        return cut

    def _client(self, session: int) -> VllmClient:
        return self._servers.clients[session % len(self._servers.clients)]

    def _send(self, session: Session) -> None:
        policy, name = session.policy or self._policy, next(self._names)
        self._running[name] = (session, policy)
        work = self._client(session.number).generate(
            list(session.ids), session.draws(self._sampling), session.left, self._stop_id, self._adapters[policy], name
        )
        self._servers.begin(_answer(name, work, self._answers))

    def _take_in(self, wait: float, resume: bool = True) -> list[Session]:
        """Take in all answers that are there, after a wait for the first; sessions whose turns were cut short."""
        cut: list[Session] = []
        try:
            answer = self._answers.get(timeout=wait)
            while True:
                self._note(answer, cut)
                answer = self._answers.get_nowait()
        except queue.Empty:
            pass
        if resume:
            for session in cut:
                self._send(session)
        return cut

    def _note(self, answer: _Answer, cut: list[Session]) -> None:
        found = self._running.pop(answer.name, None)
        if found is None:
            return  # of a session that was closed
        if isinstance(answer.said, Exception):
            raise answer.said
        session, policy = found
        session.say(answer.said.token_ids, answer.said.logprobs, policy.version)
        if answer.said.stopped_short and session.left and session.said[-1:] != [self._stop_id]:
            cut.append(session)
        else:
            self._ended.append(session.generation(self._stop_id))


async def _answer(name: str, work: Coroutine[Any, Any, Said], answers: queue.SimpleQueue[_Answer]) -> None:
    said: Said | Exception
    try:
        said = await work
    except Exception as error:  # it is raised again where the engine is stepped
        said = error
    answers.put(_Answer(name, said))
