"""A logged request to a model, and how a provider's bodies of requests are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class LoggedRequest:
    """One request to a model.

    Attributes:
        inputs: The messages that were sent.
        outputs: The messages of the response; empty when it failed or was not logged.
        id: The response's id, or the record's.
        previous: The id of the response that it continues, where the provider keeps the conversation.
    """

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    id: str | None
    previous: str | None
    session: str | None
    user: str | None
    created: str | None
    model: str | None
    outcome: float | None
    task: str | None
    tools: list[dict[str, Any]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def moment(self) -> float | None:
        """Its time, to order requests of one log: seconds if it is a date, else the number that was logged."""
        try:
            return float(self.created) if self.created else None
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(str(self.created)).timestamp()
        except ValueError:
            return None


@dataclass(frozen=True)
class RequestBodies:
    """The bodies of one provider's requests, for the format `requests` (entry points of `tracewheel.request_bodies`).

    Attributes:
        is_request: Whether an object is the body of a request. Never raises.
        is_response: Whether an object is the body of a response. Never raises.
        read_exchange: A request with its response, or with an empty object. Raises only `InvalidRecord`.
        is_entry: Whether a value is an entry of the provider's own log of requests. Never raises.
        pair_of: Of such an entry: its bodies as `request` and `response`, and what lies beside them. Raises only
            `InvalidRecord`.
    """

    is_request: Callable[[dict[str, Any]], bool]
    is_response: Callable[[dict[str, Any]], bool]
    read_exchange: Callable[[dict[str, Any], dict[str, Any]], LoggedRequest]
    is_entry: Callable[[Any], bool] | None = None
    pair_of: Callable[[dict[str, Any]], dict[str, Any]] | None = None
