"""A conversation as an engine that is asked turn by turn keeps it: ids, and the turn that is being spoken."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracewheel.engines.base import Generation, Request, Sampling
from tracewheel.engines.draws import Draws
from tracewheel.policy.adapters import PolicyRef


@dataclass
class Session:
    """`ids` is all that was heard and said. A turn may be spoken in pieces, by one policy version after another."""

    number: int
    seed: int
    temperature: float
    policy: PolicyRef | None  # None: the engine's own, whichever that is at the time
    ids: list[int] = field(default_factory=list)
    drawn: int = 0
    said: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    budget: int = 0

    @classmethod
    def open(cls, request: Request, sampling: Sampling) -> Session:
        """The session that its first request begins."""
        temperature = sampling.temperature if request.temperature is None else request.temperature
        return cls(request.session, request.seed, temperature, request.policy)

    def begin_turn(self, request: Request) -> None:
        """Hear what the request brings, and begin a turn."""
        self.ids += request.new_ids
        self.said, self.logprobs, self.versions = [], [], []
        self.budget = request.max_new_tokens

    def say(self, token_ids: list[int], logprobs: list[float], version: int) -> None:
        """Take in a piece of the turn."""
        self.ids += token_ids
        self.drawn += len(token_ids)
        self.said += token_ids
        self.logprobs += logprobs
        self.versions += [version] * len(token_ids)

    @property
    def left(self) -> int:
        """How many tokens the turn may still have."""
        return self.budget - len(self.said)

    def draws(self, sampling: Sampling) -> Draws:
        """What the rest of the turn is sampled with."""
        return Draws(self.seed, self.drawn, self.temperature, sampling.top_p, sampling.greedy)

    def generation(self, stop_id: int) -> Generation:
        """The turn, which has ended."""
        stopped = bool(self.said) and self.said[-1] == stop_id
        return Generation(self.number, self.said, self.logprobs, "stop" if stopped else "length", self.versions)
