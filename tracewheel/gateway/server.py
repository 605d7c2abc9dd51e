"""Serves the door over HTTP, in a thread with a loop of its own.

Its own paths are those of models and health; dialects declare theirs, and turns are asked for in `endpoint.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from tracewheel.config import EndpointConfig
from tracewheel.core.errors import InfrastructureError, InputError
from tracewheel.gateway.asking import Knowledge, Limits, check_key, dialect_of, read_body, refused
from tracewheel.gateway.connections import timed
from tracewheel.gateway.dialects.dialect import DIALECTS, ELSEWHERE, Dialect, not_installed
from tracewheel.gateway.dialects.fields import Fields
from tracewheel.gateway.endpoint import Endpoint
from tracewheel.gateway.exchange import CountsTokens, Door, Refusal
from tracewheel.gateway.off_loop import off_loop

VERSIONS = ("/v1", "/v1beta", "/v1alpha", "")  # of the APIs; programs differ in whether the base URL that they are given has it
NO_TEXTS = (
    "Text completions are not served: ask /v1/chat/completions, with return_token_ids for the ids"
    " (lm-eval: local-chat-completions; DSPy: model_type='chat')."
)
NO_EMBEDDINGS = "Embeddings are not served: set rollout.harness.embeddings, or give the program's client a base URL of its own."


@dataclass(frozen=True)
class _Rest:
    """The paths that all dialects share."""

    door: Door
    limits: Limits
    embeddings: EndpointConfig | None = None

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        return JSONResponse(dialect_of(request).write_models(self.door.models(check_key(self.door, request))))

    async def model(self, request: Request) -> Response:
        self.door.models(check_key(self.door, request))
        name = request.path_params["name"]  # requests may name any model, so each of them is there
        return JSONResponse(dialect_of(request).write_model(name))

    async def completions(self, request: Request) -> Response:
        raise Refusal("not_found", NO_TEXTS, code="unknown_url")

    async def embed(self, request: Request) -> Response:
        check_key(self.door, request)
        return await _embeddings(await read_body(request, self.limits), self.embeddings)

    def routes(self) -> list[tuple[str, Any, list[str]]]:
        return [
            ("/completions", self.completions, ["POST"]),
            ("/embeddings", self.embed, ["POST"]),
            ("/models", self.models, ["GET"]),
            ("/models/{name:path}", self.model, ["GET"]),
        ]


@dataclass(frozen=True)
class _Spoken:
    """The paths of a dialect."""

    dialect: Dialect
    door: Door
    known: Knowledge
    limits: Limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask for a turn."""
        request = Request(scope, receive)
        dialect = self.dialect.at(request.path_params, request.query_params)
        await Endpoint(self.door, dialect, self.known, self.limits)(scope, receive, send)

    async def count(self, request: Request) -> Response:
        key = check_key(self.door, request)
        if not isinstance(self.door, CountsTokens):
            raise Refusal("not_found", "This endpoint does not count tokens.")
        asked = await off_loop(self.dialect.read_for_count, await read_body(request, self.limits))
        return JSONResponse(self.dialect.write_count(await self.door.count_tokens(key, asked)))

    async def kept(self, request: Request) -> Response:
        said = self.known.of(check_key(self.door, request))
        identity, drop = request.path_params["identity"], request.method == "DELETE"
        return JSONResponse(self.dialect.kept(identity, said, drop=drop))

    def routes(self) -> list[tuple[str, Any, list[str]]]:
        made: list[tuple[str, Any, list[str]]] = [(path, self.count, ["POST"]) for path in self.dialect.COUNT_PATHS]
        made += ((path, self, ["POST"]) for path in self.dialect.PATHS)
        return [*made, *((path, self.kept, ["GET", "DELETE"]) for path in self.dialect.KEPT_PATHS)]


def _elsewhere(name: str) -> Any:
    async def refuse(request: Request) -> Response:
        raise not_installed(name)

    return refuse


def create_app(
    door: Door, limits: Limits | None = None, routes: Sequence[BaseRoute] = (), embeddings: EndpointConfig | None = None
) -> Starlette:
    """The application: `/v1/...`, and `/e/EPISODE/v1/...` for the keys of one episode; `routes` go before these.

    Raises:
        ConfigError: a dialect of an installed wheel cannot be imported.
    """
    limits, known = limits or Limits(), Knowledge()
    rest = _Rest(door, limits, embeddings)
    asking = [
        *(way for name in DIALECTS for way in _Spoken(DIALECTS[name](), door, known, limits).routes()),
        *rest.routes(),
        *((path, _elsewhere(name), ["POST"]) for path, name in ELSEWHERE.items() if name not in DIALECTS),
    ]
    paths: list[BaseRoute] = [
        Route(version + path, answer, methods=methods) for version in VERSIONS for path, answer, methods in asking
    ]
    paths.append(Route("/health", rest.health))
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


async def _embeddings(body: Any, config: EndpointConfig | None) -> Response:
    """The endpoint's answer to a request for embeddings, for its own model, whatever it is.

    Raises:
        Refusal: there is no endpoint, the body is no object, or the endpoint does not answer.
    """
    if config is None:
        raise Refusal("not_found", NO_EMBEDDINGS, code="unknown_url")
    key = os.environ.get(config.api_key_variable)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asked = Fields(body).value | {"model": config.model}
    try:
        async with httpx.AsyncClient(timeout=config.timeout) as client:
            answer = await client.post(f"{config.endpoint.rstrip('/')}/embeddings", json=asked, headers=headers)
    except httpx.HTTPError as error:
        raise Refusal("overloaded", f"The endpoint of rollout.harness.embeddings does not answer: {error!r:.200}.") from None
    return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))


START, STOP = 10.0, 5.0  # seconds
TURN = 0.0005  # seconds that a thread beside the loop runs while the loop waits; Python's own are ten times as many
IDLE = 75  # seconds that a connection stays open between two turns, while the program's tools run


class AppServer:
    """An application on a port, in a thread. Use it as a context manager:

        with AppServer(Starlette(routes=routes), "127.0.0.1", 0) as server:
            httpx.get(server.url())

    Args:
        app: Who answers. Its coroutines run in the server's loop.
        host: Where to listen.
        port: 0 for any free one.
        whole: Seconds in which a request must have come whole.
        sockets: Where else it listens.

    Attributes:
        loop: Where the application's coroutines run, once it serves.

    Raises:
        InputError: the port is taken or not allowed.
    """

    def __init__(
        self, app: Starlette, host: str, port: int, whole: float = Limits.whole, sockets: Sequence[socket.socket] = ()
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=1024)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on {host}:{port}: {error}") from error
        # asyncio does it only for sockets that name their protocol: an answer's body would wait 40 ms behind its head.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets = [self._socket, *sockets]
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            http=timed(whole),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Serve.

        Raises:
            InfrastructureError: the server does not start.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), TURN))
        self._thread.start()
        end = time.monotonic() + START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise InfrastructureError(f"the server does not start on {self.host}:{self.port}")
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Stop serving; requests in progress are cancelled after a second."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP)
        for one in self._sockets:
            one.close()

    def url(self, episode: str | None = None) -> str:
        """The address; of a gateway, the base URL for Anthropic's clients, where an episode may have its own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}" + ("" if episode is None else f"/e/{episode}")

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._server.serve(sockets=self._sockets)


class GatewayServer(AppServer):
    """The door on a port. Use it as a context manager:

        with GatewayServer(door) as server:
            client = OpenAI(base_url=server.openai_url("episode-1"), api_key=key)

    Args:
        door: Who answers. Its coroutines run in the server's loop.
        host: Where to listen.
        port: 0 for any free one.
        limits: Of requests and streams.
        routes: More paths, which go before the door's.
        sockets: Where else it listens.
        embeddings: Where requests for embeddings are passed on to; None for nowhere.

    Raises:
        InputError: the port is taken or not allowed.
    """

    def __init__(
        self,
        door: Door,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        routes: Sequence[BaseRoute] = (),
        sockets: Sequence[socket.socket] = (),
        embeddings: EndpointConfig | None = None,
    ) -> None:
        limits = limits or Limits()
        super().__init__(create_app(door, limits, routes, embeddings), host, port, limits.whole, sockets)

    def openai_url(self, episode: str | None = None) -> str:
        """The base URL for OpenAI's clients."""
        return f"{self.url(episode)}/v1"
