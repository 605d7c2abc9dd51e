"""Paths of a served policy beside the vendors': its health, and the end of a conversation with its outcome."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tracewheel.gateway.asking import Limits, check_key, has_key, read_body
from tracewheel.gateway.exchange import Refusal
from tracewheel.gateway.off_loop import off_loop
from tracewheel.gateway.serving import ServingDoor

LIMITS = Limits(body=4 << 20)
GIVEN: dict[str, type] = {"task": str, "environment": dict}


def serving_routes(door: ServingDoor) -> list[Route]:
    """`GET /health`, and `POST /v1/conversations/SESSION/end` with `outcome`, `task` and `environment`, each optional."""

    async def health(request: Request) -> Response:
        return JSONResponse(door.health() if has_key(door, request) else {"status": "ok"})

    async def end(request: Request) -> Response:
        key, session = check_key(door, request), request.path_params["session"]
        body = await read_body(request, LIMITS)
        outcome, given = _read(body)
        logged = await off_loop(door.end, key, session, outcome, given)
        if logged is None:
            raise Refusal("not_found", f"No conversation of the session {session!r:.80} is open.")
        return JSONResponse({"session": session, "outcome": outcome, "logged": logged})

    return [Route("/health", health), Route("/v1/conversations/{session}/end", end, methods=["POST"])]


def _read(body: Any) -> tuple[float | None, dict[str, Any]]:
    if not isinstance(body, dict):
        raise Refusal("invalid_request", "The body is to be an object with 'outcome', 'task' or 'environment'.")
    if unknown := sorted(body.keys() - {"outcome", *GIVEN}):
        raise Refusal("invalid_request", f"Unknown field: {unknown[0]!r:.80}.", unknown[0])
    outcome = body.get("outcome")
    if outcome is not None and (
        isinstance(outcome, bool) or not isinstance(outcome, int | float) or not math.isfinite(outcome)
    ):
        raise Refusal("invalid_request", "'outcome' is to be a number, or null where nobody knows.", "outcome")
    for name, kind in GIVEN.items():
        if body.get(name) is not None and not isinstance(body[name], kind):
            raise Refusal("invalid_request", f"{name!r} is to be {'a text' if kind is str else 'an object'}.", name)
    given = {name: body[name] for name in GIVEN if body.get(name) is not None}
    return None if outcome is None else float(outcome), given
