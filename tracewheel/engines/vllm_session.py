"""What the vLLM engines keep: a conversation's ids with the turn in progress, and the files of an adapter.

An adapter's files count as they were when an engine loaded them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tracewheel.core.errors import AdapterMismatchError, ConfigError
from tracewheel.core.fingerprint import files_hash
from tracewheel.engines.base import Generation, Request, Sampling
from tracewheel.engines.draws import Draws
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

    def extend(self, token_ids: list[int], logprobs: list[float], version: int) -> None:
        """Append a generated piece of the turn."""
        self.ids += token_ids
        self.drawn += len(token_ids)
        self.turn_ids += token_ids
        self.logprobs += logprobs
        self.versions += [version] * len(token_ids)

    @property
    def tokens_left(self) -> int:
        """The rest of the turn's budget."""
        return self.budget - len(self.turn_ids)

    def rest_of_turn(self, sampling: Sampling, stop_ids: frozenset[int]) -> TurnRequest:
        """The request for the rest of the turn."""
        draws = Draws(self.seed, self.drawn, self.temperature, sampling.top_p, self.greedy)
        return TurnRequest(list(self.ids), draws, self.tokens_left, stop_ids)

    def stopped(self, stop_ids: frozenset[int]) -> bool:
        """Whether the turn ended with a stop token."""
        return not stop_ids.isdisjoint(self.turn_ids[-1:])

    def generation(self, stop_ids: frozenset[int]) -> Generation:
        """The finished turn."""
        stopped = self.stopped(stop_ids)
        return Generation(self.number, self.turn_ids, self.logprobs, "stop" if stopped else "length", self.versions)
