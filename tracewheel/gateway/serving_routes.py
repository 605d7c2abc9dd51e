"""Paths of a served policy beside the vendors': its health, the end of a conversation, and what is said of one later."""

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
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.statements import THUMB, line_of, statement_of

LIMITS = Limits(body=4 << 20)
GIVEN: dict[str, type] = {"task": str, "environment": dict}


def serving_routes(door: ServingDoor) -> list[Route]:
    """`GET /health`, `POST /v1/conversations/SESSION/end` with `outcome`, `task` and `environment`, `POST /v1/feedback`.

    Each field of an end is optional. Feedback names a conversation by the `id` of one of its responses or by its `session`, and
    has a `value`; `kind` is `thumb` unless it says another, `said` now.
    """

    async def health(request: Request) -> Response:
        return JSONResponse(door.health() if has_key(door, request) else {"status": "ok"})

    async def end(request: Request) -> Response:
        key, session = check_key(door, request), request.path_params["session"]
        body = await read_body(request, LIMITS)
        outcome, given = _read(body)
        logged = await off_loop(door.end, key, session, outcome, given)
        if logged is None and outcome is None:
            raise Refusal("not_found", f"No conversation of the session {session!r:.80} is open.")
        later = {"feedback": True, "ignored": sorted(given)} if logged is None else {}
        return JSONResponse({"session": session, "outcome": outcome, "logged": bool(logged), **later})

    async def feedback(request: Request) -> Response:
        key = check_key(door, request)
        body = await read_body(request, LIMITS)
        try:
            if not isinstance(body, dict):
                raise InvalidRecord("not an object", "the body is to be an object with 'id' or 'session', and 'value'")
            statement = statement_of(body, "", 0, kind=THUMB)
        except InvalidRecord as error:
            raise Refusal("invalid_request", error.detail) from error
        taken = await off_loop(door.say, key, statement)
        return JSONResponse({**line_of(statement), "taken": taken})

    ends = Route("/v1/conversations/{session}/end", end, methods=["POST"])
    return [Route("/health", health), ends, Route("/v1/feedback", feedback, methods=["POST"])]


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
