"""Who asks, as the request says beside its messages: a session and a user, in headers or in the body."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

SESSION_HEADER, USER_HEADER = "x-tracewheel-session", "x-tracewheel-user"
LONGEST = 200  # characters of a name


@dataclass(frozen=True)
class Asker:
    """The names that a request gives; None without."""

    session: str | None = None
    user: str | None = None


ASKER: ContextVar[Asker] = ContextVar("asker")  # of the request that is being answered


def asker_of(headers: Mapping[str, str], body: Any) -> Asker:
    """Read the headers, and the vendors' fields for the end user: `user`, `safety_identifier`, `metadata.user_id`."""
    fields = body if isinstance(body, dict) else {}
    metadata = fields.get("metadata")
    of_metadata = metadata.get("user_id") if isinstance(metadata, dict) else None
    users = (headers.get(USER_HEADER), fields.get("user"), fields.get("safety_identifier"), of_metadata)
    return Asker(_name(headers.get(SESSION_HEADER)), next((name for name in map(_name, users) if name), None))


def _name(value: Any) -> str | None:
    return value[:LONGEST] if isinstance(value, str) and value else None
