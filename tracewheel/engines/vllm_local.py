"""An `Engine` over vLLM in this process.

A turn is a request with the conversation's ids as its prompt; vLLM's prefix cache holds what earlier turns
computed, so only what is new is read. New weights in the middle of a turn: what was said so far is taken
back, and the turn goes on behind it under the new policy.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from tracewheel.core.errors import ConfigError
from tracewheel.engines.adapter_files import AdapterFiles
from tracewheel.engines.base import Generation, Request, Sampling
from tracewheel.engines.sessions import Session
from tracewheel.engines.vllm_core import VllmCore
from tracewheel.policy.adapters import PolicyRef


class VllmEngine:
    """Sessions over a core that is shared with other engines of the process.

    Args:
        core_of: The core for a base model.
        policy: Who speaks.
        stop_id: The token that ends a turn; it belongs to the turn.
        sampling: How tokens are chosen.

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base, or is not what vLLM serves.
        ConfigError: its rank is larger than the engine was made for.
        InfrastructureError: vLLM does not start.
    """

    def __init__(self, core_of: Callable[[str], VllmCore], policy: PolicyRef, stop_id: int, sampling: Sampling) -> None:
        self._core_of = core_of
        self._policy, self.policy_version = policy, policy.version
        self._core = core_of(policy.base)
        self._adapters: dict[PolicyRef, AdapterFiles | None] = {policy: self._core.load(policy)}
        self._stop_id = stop_id
        self._sampling = sampling
        self._sessions: dict[int, Session] = {}
        self._running: dict[str, Session] = {}
        self._ended: list[Generation] = []

    @property
    def idle(self) -> bool:
        """Whether no turn is being spoken, and none that has ended is left to be fetched."""
        return not self._running and not self._ended

    def submit(self, request: Request) -> None:
        """Queue a turn.

        Raises:
            AdapterMismatchError, ConfigError: as for the engine's own policy, of a session's.
        """
        session = self._sessions.get(request.session)
        if session is None:
            if request.policy is not None and request.policy not in self._adapters:
                self._adapters[request.policy] = self._load_beside(request.policy)
            session = self._sessions[request.session] = Session.open(request, self._sampling)
        session.begin_turn(request)
        self._send(session)

    def step(self) -> list[Generation]:
        """Move on; returns the turns that ended in this step, perhaps none."""
        if not self._ended:
            self._core.step()
        with self._core.lock:
            ended, self._ended = self._ended, []
        return ended

    def close(self, session: int) -> None:
        """Forget a session, in the middle of a turn too."""
        self._sessions.pop(session)
        with self._core.lock:
            for name in [name for name, running in self._running.items() if running.number == session]:
                del self._running[name]
                self._core.take_back(name)
            self._ended = [generation for generation in self._ended if generation.session != session]

    def update_weights(self, policy: PolicyRef) -> None:
        """Go on with this policy; see `Engine`.

        Raises:
            AdapterMismatchError: the adapter belongs to another base, or is not what vLLM serves. The engine stays as it was.
            ConfigError: its rank is larger than the engine was made for, or sessions have policies on the base that goes.
        """
        if policy == self._policy:
            return
        if policy.base != self._policy.base and any(session.policy for session in self._sessions.values()):
            raise ConfigError(f"{policy.base}: another base cannot come while sessions have policies of their own on the old")
        # First, so that the check of the new weights waits for nothing, and no more is said by the old.
        interrupted = self._interrupt()
        try:
            if policy.base != self._policy.base:
                self._core = self._core_of(policy.base)
            self._adapters[policy] = self._core.load(policy)
            if not any(session.policy == self._policy for session in self._sessions.values()):
                del self._adapters[self._policy]
            self._policy, self.policy_version = policy, policy.version
        finally:
            for session in interrupted:
                self._send(session)

    def _load_beside(self, policy: PolicyRef) -> AdapterFiles | None:
        if policy.base != self._policy.base:
            raise ConfigError(
                f"{policy.base}: policies that speak at once need one base, and the engine's is {self._policy.base}"
            )
        return self._core.load(policy)

    def _interrupt(self) -> list[Session]:
        """Stop the turns of the engine's own policy; their sessions."""
        sessions = []
        with self._core.lock:
            for name, session in list(self._running.items()):
                if session.policy is None:
                    del self._running[name]
                    session.say(*self._core.take_back(name), self._policy.version)
                    sessions.append(session)
        return sessions

    def _send(self, session: Session) -> None:
        policy = session.policy or self._policy
        # Weakly, so that an engine that was given up is not kept alive by what it has asked for.
        reference = weakref.ref(self)

        def ended(name: str, token_ids: list[int], logprobs: list[float]) -> None:
            engine = reference()
            if engine is not None:
                engine._end(name, token_ids, logprobs, policy.version)

        with self._core.lock:
            adapter = self._adapters[policy]
            name = self._core.add(session.ids, session.draws(self._sampling), session.left, self._stop_id, adapter, ended)
            self._running[name] = session

    def _end(self, name: str, token_ids: list[int], logprobs: list[float], version: int) -> None:
        session = self._running.pop(name)
        session.say(token_ids, logprobs, version)
        self._ended.append(session.generation(self._stop_id))
