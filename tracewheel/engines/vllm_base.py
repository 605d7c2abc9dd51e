"""What both vLLM engines share: sessions, the policies that they use, and the change of weights.

A turn is a request with the conversation's ids as its prompt; vLLM's prefix cache holds what earlier turns
computed, so only the new ids are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from tracewheel.core.errors import ConfigError
from tracewheel.engines.base import Generation, Request, Sampling, as_stop_ids
from tracewheel.engines.vllm_session import AdapterFiles, Session
from tracewheel.policy.adapters import PolicyRef


class Backend(Protocol):
    """vLLM with one base, here or behind HTTP."""

    def load(self, policy: PolicyRef) -> AdapterFiles | None:
        """Load a policy's adapter and check that it is served. Returns None for a policy without one."""
        ...


BackendT = TypeVar("BackendT", bound=Backend)


class VllmEngineBase(ABC, Generic[BackendT]):
    """Sessions over a backend that other engines of the process share.

    Args:
        backend_of: The backend for a base model.
        policy: The policy to begin with.
        stop_ids: The tokens that end a turn; whichever does belongs to the turn. A single one may be given as a number.
        sampling: How tokens are chosen.

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base, or vLLM does not serve it as trained.
        ConfigError: the adapter's rank is too large, or a server was started with other settings.
        InfrastructureError: vLLM does not start or answer.
    """

    def __init__(
        self,
        backend_of: Callable[[str], BackendT],
        policy: PolicyRef,
        stop_ids: int | Iterable[int],
        sampling: Sampling,
    ) -> None:
        self._backend_of = backend_of
        self._policy, self.policy_version = policy, policy.version
        self._backend = backend_of(policy.base)
        self._adapters: dict[PolicyRef, AdapterFiles | None] = {policy: self._backend.load(policy)}
        self._stop_ids = as_stop_ids(stop_ids)
        self._sampling = sampling
        self._sessions: dict[int, Session] = {}
        self._running: dict[str, Session] = {}  # by the request's name
        self._ended: list[Generation] = []

    @property
    def idle(self) -> bool:
        """Whether no turn is running and none that ended waits to be fetched."""
        return not self._running and not self._ended

    def submit(self, request: Request) -> None:
        """Queue a turn; raises like the constructor for a session's own policy."""
        session = self._sessions.get(request.session)
        if session is None:
            if request.policy is not None and request.policy not in self._adapters:
                if request.policy.base != self._policy.base:
                    raise ConfigError(
                        f"{request.policy.base}: concurrent policies need one base, and the engine's is {self._policy.base}"
                    )
                self._adapters[request.policy] = self._backend.load(request.policy)
            session = self._sessions[request.session] = Session.open(request, self._sampling)
        session.begin_turn(request)
        self._send(session)

    def close(self, session: int) -> None:
        """Forget a session, even in the middle of a turn."""
        del self._sessions[session]
        self._cancel([name for name, running in self._running.items() if running.number == session])
        self._ended = [generation for generation in self._ended if generation.session != session]

    def update_weights(self, policy: PolicyRef) -> None:
        """Continue with this policy; see `Engine`. Open turns are interrupted and resumed after what they have generated.

        Raises:
            AdapterMismatchError: the adapter belongs to another base, or is not served as trained; the old policy stays.
            ConfigError: the adapter's rank is too large, or sessions have policies of their own on the old base.
            InfrastructureError: a server does not come back.
        """
        if policy == self._policy:
            return
        if policy.base != self._policy.base and any(session.policy for session in self._sessions.values()):
            raise ConfigError(f"{policy.base}: the base cannot change while sessions have policies of their own on the old one")
        # First, so that the check of the new weights waits for nothing and the old ones generate no more.
        interrupted = self._interrupt()
        try:
            if policy.base != self._policy.base:
                self._backend = self._backend_of(policy.base)
            self._adapters[policy] = self._backend.load(policy)
            if not any(session.policy == self._policy for session in self._sessions.values()):
                del self._adapters[self._policy]
            self._policy, self.policy_version = policy, policy.version
        finally:
            for session in interrupted:
                self._send(session)

    @abstractmethod
    def _send(self, session: Session) -> None:
        """Request the rest of a session's turn."""

    @abstractmethod
    def _cancel(self, names: list[str]) -> None:
        """Give up running requests."""

    @abstractmethod
    def _interrupt(self) -> list[Session]:
        """Stop the running turns of the engine's own policy; returns their sessions, with what they have generated."""
