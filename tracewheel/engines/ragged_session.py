"""A conversation as the transformers engine keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tracewheel.chat.grammar import GrammarState
from tracewheel.engines.base import Generation, Request, Sampling
from tracewheel.engines.draws import RANDOM_BLOCK


@dataclass(eq=False)
class RaggedSession:
    """`ids` holds all that was observed and generated. The model has read the first `read`; the turn begins at `start`."""

    number: int
    row: int
    random: np.random.Generator
    temperature: float
    greedy: bool = False
    uniforms: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    read: int = 0
    start: int = 0
    end: int = 0  # of the turn's budget
    digest: int = 0
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    grammar: GrammarState | None = None

    @classmethod
    def open(cls, request: Request, row: int, sampling: Sampling) -> RaggedSession:
        """The session of its first request."""
        temperature = sampling.temperature if request.temperature is None else request.temperature
        greedy = request.greedy or sampling.greedy
        session = cls(request.session, row, np.random.default_rng(request.seed), temperature, greedy)
        session.begin_turn(request)
        return session

    @property
    def unread(self) -> int:
        """The number of ids that the model has not read."""
        return len(self.ids) - self.read

    @property
    def place(self) -> tuple[int, int]:
        """A digest of the ids, and how many are read: hardly ever the same for sessions that differ in one of them.

        It is the same for sessions with equal ids if their turns are the same, too.
        """
        return self.digest, self.read

    def next_ids(self, count: int) -> list[int]:
        """Take the next ids for the model to read."""
        self.read += count
        return self.ids[self.read - count : self.read]

    def begin_turn(self, request: Request) -> None:
        """Append the observation to the tokens that stay, and begin a turn. One token at least is left to read."""
        self.ids = self.ids[: request.keep] + request.new_ids
        self.read = min(self.read, request.keep if request.keep is not None else self.read, len(self.ids) - 1)
        self.digest = hash(tuple(self.ids))
        self.start = len(self.ids)
        self.end = self.start + request.max_new_tokens
        self.logprobs, self.versions = [], []
        self.grammar = request.grammar

    def append(self, token: int, logprob: float, version: int) -> None:
        """Append a sampled token."""
        self.ids.append(token)
        self.digest = hash((self.digest, token))
        self.logprobs.append(logprob)
        self.versions.append(version)
        if self.grammar is not None:
            self.grammar.take(token)

    def finished(self, stop_ids: frozenset[int]) -> Generation | None:
        """The turn, if it has ended: also where its grammar says no more, within its limits."""
        stopped = self.ids[-1] in stop_ids
        if not stopped and len(self.ids) < self.end and not (self.grammar and self.grammar.failed):
            return None
        return Generation(self.number, self.ids[self.start :], self.logprobs, "stop" if stopped else "length", self.versions)

    def next_uniform(self) -> float:
        """The session's next random number in [0, 1)."""
        if not self.uniforms:
            self.uniforms = self.random.random(RANDOM_BLOCK).tolist()
        return self.uniforms.pop()


BLOCK = 16


class PromptBeginnings:
    """The first prompts of open sessions."""

    def __init__(self) -> None:
        self._owners: dict[int, RaggedSession] = {}
        self._digests: dict[int, list[int]] = {}  # by session

    def find(self, session: RaggedSession) -> tuple[RaggedSession | None, int]:
        """The session that has most of this one's beginning, and how many tokens; what has no owner becomes this one's.

        One token at least is left to read.
        """
        digests = self._digests.setdefault(session.number, _digests(session.ids))
        found: tuple[RaggedSession | None, int] = (None, 0)
        for number, digest in enumerate(digests, 1):
            owner = self._owners.setdefault(digest, session)
            length = number * BLOCK
            if owner is not session and owner.ids[:length] == session.ids[:length]:
                found = (owner, length)
        return found

    def forget(self, session: RaggedSession) -> None:
        """Drop a session that is closed."""
        for digest in self._digests.pop(session.number, []):
            if self._owners.get(digest) is session:
                del self._owners[digest]


def _digests(ids: list[int]) -> list[int]:
    """A digest for each whole block, of all tokens up to its end, without the last token."""
    digests, last = [], 0
    for stop in range(BLOCK, len(ids), BLOCK):
        last = hash((last, *ids[stop - BLOCK : stop]))
        digests.append(last)
    return digests
