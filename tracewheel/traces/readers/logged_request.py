"""One request to a model, as the readers of providers' bodies give it to `requests`, which joins them."""

from __future__ import annotations

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
