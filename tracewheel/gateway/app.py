"""The paths of the door: models, stored responses and health; turns are asked for in `endpoint.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from tracewheel.gateway.asking import Knowledge, Limits, check_key, dialect_of, read_body, refused
from tracewheel.gateway.dialects.anthropic import AnthropicMessages
from tracewheel.gateway.dialects.chat import ChatCompletions
from tracewheel.gateway.dialects.responses import Responses
from tracewheel.gateway.endpoint import Endpoint
from tracewheel.gateway.exchange import CountsTokens, Door, Refusal
from tracewheel.gateway.off_loop import off_loop

EARLIEST = "1970-01-01T00:00:00Z"  # the vendors want a date of each model; these have none
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class _Rest:
    """All paths but those that ask for a turn."""

    door: Door
    known: Knowledge
    limits: Limits

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        names = self.door.models(check_key(self.door, request))
        if not _is_anthropic(request):
            return JSONResponse({"object": "list", "data": [_model(name) for name in names]})
        shown = [_anthropic_model(name) for name in names]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return JSONResponse({"data": shown, "has_more": False, **ends})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.door.models(check_key(self.door, request)):
            raise Refusal("not_found", f"The model {name!r:.80} does not exist.", "model", code="model_not_found")
        return JSONResponse(_anthropic_model(name) if _is_anthropic(request) else _model(name))

    async def response(self, request: Request) -> Response:
        identity = request.path_params["identity"]
        said = self.known.of(check_key(self.door, request))
        found = said.response(identity)
        if found is None:
            raise Refusal("not_found", f"Response with id {identity!r:.80} not found.")
        if request.method == "DELETE":
            said.drop_response(identity)
            return JSONResponse({"id": identity, "object": "response", "deleted": True})
        return JSONResponse(found.body)

    async def count_tokens(self, request: Request) -> Response:
        key = check_key(self.door, request)
        if not isinstance(self.door, CountsTokens):
            raise Refusal("not_found", "This endpoint does not count tokens.")
        asked = await off_loop(AnthropicMessages().read_for_count, await read_body(request, self.limits))
        return JSONResponse({"input_tokens": await self.door.count_tokens(key, asked)})


def create_app(door: Door, limits: Limits | None = None, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application: `/v1/...`, and `/e/EPISODE/v1/...` for the keys of one episode; `routes` go before these."""
    limits, known = limits or Limits(), Knowledge()
    rest = _Rest(door, known, limits)
    paths: list[BaseRoute] = [
        Route("/v1/chat/completions", Endpoint(door, ChatCompletions(), known, limits), methods=["POST"]),
        Route("/v1/responses", Endpoint(door, Responses(), known, limits), methods=["POST"]),
        Route("/v1/responses/{identity}", rest.response, methods=["GET", "DELETE"]),
        Route("/v1/messages", Endpoint(door, AnthropicMessages(), known, limits), methods=["POST"]),
        Route("/v1/messages/count_tokens", rest.count_tokens, methods=["POST"]),
        Route("/v1/models", rest.models),
        Route("/v1/models/{name:path}", rest.model),
        Route("/health", rest.health),
    ]
    handlers: Any = {Refusal: _on_refusal, HTTPException: _on_http, Exception: _on_error}
    return Starlette(routes=[*routes, *paths, Mount("/e/{episode}", routes=paths)], exception_handlers=handlers)


async def _on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(request, dialect_of(request), error)


async def _on_http(request: Request, error: Exception) -> Response:
    """An unknown path, or a method that a path has not."""
    assert isinstance(error, HTTPException)
    text = f"Unknown request URL: {request.method} {request.url.path:.200}."
    return refused(request, dialect_of(request), Refusal("not_found", text, code="unknown_url"), status=error.status_code)


async def _on_error(request: Request, error: Exception) -> Response:
    """A mistake of ours or of the engine; the server logs it."""
    return refused(request, dialect_of(request), Refusal("server_error", "The server had an error."))


def _is_anthropic(request: Request) -> bool:
    return isinstance(dialect_of(request), AnthropicMessages)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "tracewheel"}


def _anthropic_model(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": EARLIEST, "lifecycle": "active"}
