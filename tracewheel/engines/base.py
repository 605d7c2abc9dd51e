"""The engine protocol: sessions that grow by token ids, and turns sampled for many sessions at once.

A session is one conversation. `submit` appends ids to it and requests a turn; `step` advances all open requests
and returns the turns that ended. The engine keeps what it has computed for a session until `close`, so no turn
computes the conversation again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from tracewheel.chat.grammar import GrammarState
from tracewheel.policy.adapters import PolicyRef


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Log-probabilities are those at `temperature`, before top-p."""

    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False


@dataclass(frozen=True)
class Request:
    """Append `new_ids` to a session and sample a turn. A session's first request opens it.

    `keep` is the number of the session's tokens that stay before `new_ids`, None for all: the others are forgotten, as where
    a chat template rewrites earlier turns. The session's random numbers go on.

    `seed` fixes the session's random numbers, `temperature` overrides the engine's, and `policy` the engine's
    policy (not every engine can). A `greedy` session takes the most likely token at each step, also on an engine that
    samples. All four are read at the session's first request.

    `grammar` is what the turn may say, at its beginning: each token is drawn from those that it allows, and its log-probability
    is that among them. Only an engine with `CONSTRAINS` takes one.
    """

    session: int
    new_ids: list[int]
    max_new_tokens: int
    seed: int = 0
    temperature: float | None = None
    policy: PolicyRef | None = None
    greedy: bool = False
    keep: int | None = None
    grammar: GrammarState | None = None


@dataclass(frozen=True)
class Generation:
    """A sampled turn: ids (the stop token included), and for each its log-probability and the version that sampled it."""

    session: int
    token_ids: list[int]
    logprobs: list[float]
    ended_by: Literal["stop", "length"]
    versions: list[int]


def as_stop_ids(stop_ids: int | Iterable[int]) -> frozenset[int]:
    """The tokens that end a turn, from one or several."""
    return frozenset([stop_ids] if isinstance(stop_ids, int) else stop_ids)


class Engine(Protocol):
    """Samples turns for many sessions at once."""

    policy_version: int

    @property
    def idle(self) -> bool:
        """Whether there is nothing to sample: every session waits for its next observation, or there are none."""
        ...

    def submit(self, request: Request) -> None:
        """Queue a turn."""
        ...

    def step(self) -> list[Generation]:
        """Advance all turns; returns those that ended in this step, perhaps none."""
        ...

    def close(self, session: int) -> None:
        """Forget a session."""
        ...

    def update_weights(self, policy: PolicyRef) -> None:
        """Continue with this policy: tokens sampled from now on are its own and carry its version.

        Open sessions continue, even in the middle of a turn.

        Raises:
            AdapterMismatchError: the policy's adapter belongs to another base.
        """
        ...
