"""What both vLLM engines share: sessions, the policies that they use, and the change of weights.

A turn is a request with the conversation's ids as its prompt; vLLM's prefix cache holds what earlier turns
computed, so only the new ids are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from tracewheel.chat.grammar import Grammar
from tracewheel.core.errors import AdapterMismatchError, ConfigError
from tracewheel.core.fingerprint import files_hash
from tracewheel.core.types import content_hash
from tracewheel.engines.base import Generation, Request, Sampling, as_stop_ids
from tracewheel.engines.draws import CUT, Draws
from tracewheel.policy.adapter_check import WEIGHTS
from tracewheel.policy.adapter_form import CONFIG, beyond_vllm, largest_rank, read_form
from tracewheel.policy.adapters import PolicyRef, check_adapter


@dataclass(frozen=True)
class AdapterFiles:
    """An adapter's folder and the digest of its weights and config."""

    folder: str
    digest: str

    @classmethod
    def of(cls, policy: PolicyRef) -> AdapterFiles:
        """The files of a policy's adapter.

        Raises:
            AdapterMismatchError: it was trained for another base.
            DataError: the folder holds no adapter.
        """
        assert policy.adapter is not None
        check_adapter(policy.adapter, policy.base)
        folder = str(Path(policy.adapter).resolve())
        return cls(folder, _digest(folder))

    def check(self, max_rank: int) -> None:
        """Check that the files are unchanged, that their rank is at most `max_rank`, and that vLLM computes their form.

        Raises:
            AdapterMismatchError: the files have changed.
            ConfigError: the rank is too large, or vLLM does not compute the form.
        """
        if _digest(self.folder) != self.digest:
            raise AdapterMismatchError(
                f"{self.folder}: its files have changed since the engine loaded them; write each version to a folder of its own"
            )
        form = read_form(Path(self.folder))
        if unknown := beyond_vllm(form):
            raise ConfigError(
                f"{self.folder}: vLLM does not compute {unknown}: set rollout.engine.kind to 'transformers', or use its merged "
                "weights as the base (`tracewheel export --format merged`)"
            )
        rank = largest_rank(form)
        if rank > max_rank:
            raise ConfigError(
                f"{self.folder}: has rank {rank}, and the engine takes at most {max_rank}, the largest that the profile trains "
                "(warm_start.lora.rank)"
            )


def _digest(folder: str) -> str:
    return files_hash([Path(folder) / name for name in (WEIGHTS, CONFIG)])


@dataclass(frozen=True)
class TurnRequest:
    """Sample up to `max_tokens` after `ids`. Any of `stop_ids` ends the turn and belongs to it; with none, the budget does."""

    ids: list[int]
    draws: Draws
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()

    def parameters(self, draws: str) -> dict[str, Any]:
        """VLLM's sampling parameters, by who draws.

        vLLM's own sampler gets a seed of this turn's: without one, servers that began alike would sample a group's episodes
        alike.
        """
        own = self.draws
        shared = {
            "max_tokens": self.max_tokens,
            "logprobs": 0,
            "stop_token_ids": sorted(self.stop_ids),
            "ignore_eos": True,
            "detokenize": False,
        }
        if draws == "ours":
            return shared | {"temperature": 0.0, "extra_args": own.extra_args()}
        if own.greedy:
            return shared | {"temperature": 0.0}
        return shared | {
            "temperature": own.temperature,
            "top_p": own.top_p,
            "seed": int(content_hash([own.seed, own.skip], 15), 16),
        }


@dataclass
class Session:
    """`ids` holds all that was observed and generated; one turn may be generated in pieces, by successive policy versions."""

    number: int
    seed: int
    temperature: float
    policy: PolicyRef | None  # None: the engine's own at the time
    greedy: bool = False
    ids: list[int] = field(default_factory=list)
    drawn: int = 0
    turn_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    budget: int = 0
    grammar: Grammar | None = None
    cut: bool = False  # whether the turn's grammar says no more, within its limits

    @classmethod
    def open(cls, request: Request, sampling: Sampling) -> Session:
        """The session of its first request."""
        temperature = sampling.temperature if request.temperature is None else request.temperature
        return cls(request.session, request.seed, temperature, request.policy, request.greedy or sampling.greedy)

    def begin_turn(self, request: Request) -> None:
        """Append the observation to the tokens that stay, and begin a turn."""
        self.ids = self.ids[: request.keep] + request.new_ids
        self.turn_ids, self.logprobs, self.versions = [], [], []
        self.budget = request.max_new_tokens
        self.grammar, self.cut = request.grammar.grammar if request.grammar else None, False

    def extend(self, token_ids: list[int], logprobs: list[float], version: int) -> None:
        """Append a generated piece of the turn."""
        if self.grammar and logprobs and logprobs[-1] == CUT:
            token_ids, logprobs, self.cut = token_ids[:-1], logprobs[:-1], True
        self.ids += token_ids
        self.drawn += len(token_ids)
        self.turn_ids += token_ids
        self.logprobs += logprobs
        self.versions += [version] * len(token_ids)

    @property
    def tokens_left(self) -> int:
        """The rest of the turn's budget; none where its grammar says no more."""
        return 0 if self.cut else self.budget - len(self.turn_ids)

    def rest_of_turn(self, sampling: Sampling, stop_ids: frozenset[int]) -> TurnRequest:
        """The request for the rest of the turn."""
        draws = Draws(self.seed, self.drawn, self.temperature, sampling.top_p, self.greedy)
        if self.grammar is not None:
            draws = replace(draws, grammar=self.grammar.text, grammar_stops=self.grammar.stop_ids, said=tuple(self.turn_ids))
        return TurnRequest(list(self.ids), draws, self.tokens_left, stop_ids)

    def stopped(self, stop_ids: frozenset[int]) -> bool:
        """Whether the turn ended with a stop token."""
        return not stop_ids.isdisjoint(self.turn_ids[-1:])

    def generation(self, stop_ids: frozenset[int]) -> Generation:
        """The finished turn."""
        stopped = self.stopped(stop_ids)
        return Generation(self.number, self.turn_ids, self.logprobs, "stop" if stopped else "length", self.versions)


BackendT = TypeVar("BackendT", bound=Any)  # `VllmCore` or `VllmServers`


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
    def CONSTRAINS(self) -> bool:
        """Whether turns can be held to grammars: our draws do."""
        return bool(self._backend.draws == "ours")

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
