"""What each dialect has: how a request is read, and how replies and refusals are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from tracewheel.gateway.dialects.said import Said
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal


class Event(NamedTuple):
    """A server-sent event; `name` is None in a dialect whose events have none."""

    name: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request with how its answer is wanted.

    Attributes:
        request: What the door is asked.
        body: The body as sent.
        stream: Whether the answer comes as events.
        answers: How many answers are wanted.
        history: The messages that a later request may refer to, without instructions.
    """

    request: ChatRequest
    body: dict[str, Any]
    stream: bool = False
    answers: int = 1
    history: list[dict[str, Any]] = field(default_factory=list)


class Dialect(ABC):
    """A vendor's API: pure functions between its JSON and ours. Times are seconds since 1970."""

    END: ClassVar[str | None] = None  # what the last event of a stream holds instead of JSON

    @abstractmethod
    def read(self, body: Any, said: Said) -> Asked:
        """The request in a body.

        Raises:
            Refusal: the body is wrong, or asks for something that this door has not.
        """

    @abstractmethod
    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> dict[str, Any]:
        """The body of the answer."""

    @abstractmethod
    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """The answer as a stream."""

    def remember(self, asked: Asked, replies: Sequence[ChatReply], created: int, said: Said) -> None:
        """Keep what a later request may name or send back."""
        for reply in replies:
            said.keep_calls(reply)

    def status(self, refusal: Refusal) -> int:
        """The HTTP status of a refusal."""
        return refusal.status

    @abstractmethod
    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """The body of a refusal."""

    @abstractmethod
    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """A refusal after a stream has begun."""
