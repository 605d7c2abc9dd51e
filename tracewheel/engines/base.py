"""What an engine is: sessions that grow by token ids, and generations that come back when done.

A session is one conversation. `submit` appends ids to it and asks for a turn; `step` moves all open
requests on and returns the turns that ended. The engine keeps what it has computed for a session
until `close`, so no turn computes the conversation again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from tracewheel.policy.adapters import PolicyRef


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Log-probabilities are those at `temperature`, before top-p."""

    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False


@dataclass(frozen=True)
class Request:
    """Append `new_ids` to a session (which begins with its first request) and sample a turn.

    `seed` fixes the session's random numbers, and `temperature` is what it is sampled at, where it is not
    the engine's. `policy` speaks in this session where it is not the engine's own, which only some engines can.
    All three are read at the session's first request.
    """

    session: int
    new_ids: list[int]
    max_new_tokens: int
    seed: int = 0
    temperature: float | None = None
    policy: PolicyRef | None = None


@dataclass(frozen=True)
class Generation:
    """A sampled turn: ids (the stop token included), and of each its log-probability and the version that sampled it."""

    session: int
    token_ids: list[int]
    logprobs: list[float]
    ended_by: Literal["stop", "length"]
    versions: list[int]


class Engine(Protocol):
    """Generates turns for many sessions at once."""

    policy_version: int

    @property
    def idle(self) -> bool:
        """Whether there is nothing to generate: all sessions wait for what they hear next, or there are none."""
        ...

    def submit(self, request: Request) -> None:
        """Queue a turn."""
        ...

    def step(self) -> list[Generation]:
        """Move on; returns the turns that ended in this step, perhaps none."""
        ...

    def close(self, session: int) -> None:
        """Forget a session."""
        ...

    def update_weights(self, policy: PolicyRef) -> None:
        """Go on with this policy: tokens sampled from now on are its, and carry its version.

        Open sessions go on, in the middle of a turn too.

        Raises:
            AdapterMismatchError: the policy's adapter belongs to another base.
        """
        ...
