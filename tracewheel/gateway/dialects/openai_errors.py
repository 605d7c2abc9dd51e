"""Refusals as OpenAI sends them."""

from __future__ import annotations

from typing import Any

from tracewheel.gateway.exchange import Refusal

# Type and code of each kind.
WORDS: dict[str, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "context_length_exceeded": ("invalid_request_error", "context_length_exceeded"),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "not_found": ("invalid_request_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit": ("requests", "rate_limit_exceeded"),
    "server_error": ("server_error", None),
    "overloaded": ("server_error", "overloaded"),
}


def error_body(refusal: Refusal) -> dict[str, Any]:
    """The body of a refusal."""
    kind, code = WORDS[refusal.kind]
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code or code}}
