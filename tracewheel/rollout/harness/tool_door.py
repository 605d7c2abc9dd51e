"""The environments beside programs, over HTTP and as MCP servers.

Under the base URL of an episode, with its key: `GET tools` gives the schemas in OpenAI's format, `POST call/NAME` with the
arguments as a JSON object carries out a call, and `POST reply` with `{"text": ...}` asks an environment that answers texts.
Both answer `{"text", "error", "done"}`. `POST mcp` is an MCP server with the same tools.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tracewheel.core.strict_json import parse_json
from tracewheel.environments import Observation
from tracewheel.rollout.harness.mcp_answers import McpAnswers
from tracewheel.rollout.harness.worlds import OVER, LiveWorld

LARGEST_BODY = 16 << 20
FAILED = "the environment has failed, and the episode has ended"
EPISODE = "/e/{episode}"


class ToolDoor:
    """Answers the programs' calls. Worlds are added and taken away in the thread of its event loop."""

    def __init__(self) -> None:
        self._worlds: dict[str, tuple[str, LiveWorld]] = {}

    def add(self, episode: str, key: str, world: LiveWorld) -> None:
        """Serve an environment to the program with `key`, under the address of its episode."""
        self._worlds[episode] = (key, world)

    def remove(self, episode: str) -> None:
        """Serve it no more."""
        self._worlds.pop(episode, None)

    def routes(self) -> list[Route]:
        """The routes of all episodes."""
        return [
            Route(f"{EPISODE}/tools", self._tools, methods=["GET"]),
            Route(f"{EPISODE}/call/{{name:path}}", self._call, methods=["POST"]),
            Route(f"{EPISODE}/reply", self._reply, methods=["POST"]),
            Route(f"{EPISODE}/mcp", self._mcp, methods=["GET", "POST", "DELETE"]),
        ]

    async def _tools(self, request: Request) -> Response:
        world = self._world_of(request)
        return world if isinstance(world, Response) else JSONResponse(_tools_of(world))

    async def _call(self, request: Request) -> Response:
        world = self._world_of(request)
        if isinstance(world, Response):
            return world
        arguments = await _json_object(request)
        if isinstance(arguments, Response):
            return arguments
        return _answer(await _undisturbed(world.call(request.path_params["name"], arguments)))

    async def _reply(self, request: Request) -> Response:
        world = self._world_of(request)
        if isinstance(world, Response):
            return world
        said = await _json_object(request)
        if isinstance(said, Response):
            return said
        if not isinstance(said.get("text"), str):
            return _refused(400, "the body must be a JSON object with a 'text'")
        return _answer(await _undisturbed(world.say(said["text"])))

    async def _mcp(self, request: Request) -> Response:
        world = self._world_of(request)
        if isinstance(world, Response):
            return world
        if request.method != "POST":  # it keeps no sessions, and says nothing unasked
            return Response(status_code=405, headers={"Allow": "POST"})
        body = await _body(request)
        if isinstance(body, Response):
            return body
        status, answer = await _undisturbed(McpAnswers(_tools_of(world), world.call).answer(body))
        return Response(status_code=status) if answer is None else JSONResponse(answer, status)

    def _world_of(self, request: Request) -> LiveWorld | Response:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = request.headers.get("x-api-key", "")
        found = self._worlds.get(request.path_params["episode"])
        if found is None or not hmac.compare_digest(key.strip().encode(), found[0].encode()):
            return _refused(401, "this key belongs to no episode that is open here")
        return found[1]


async def _undisturbed(work: Any) -> Any:
    """The result of work that goes on where the client leaves: an environment cannot be stopped in the middle of a call."""
    return await asyncio.shield(work)


async def _body(request: Request) -> bytes | Response:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            return _refused(413, f"the body has over {LARGEST_BODY} bytes")
    return bytes(body)


async def _json_object(request: Request) -> dict[str, Any] | Response:
    body = await _body(request)
    if isinstance(body, Response):
        return body
    try:
        value = parse_json(body.decode() or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else _refused(400, "the body must be a JSON object")


def _tools_of(world: LiveWorld) -> list[dict[str, Any]]:
    return world.opened.tools if world.opened else []


def _answer(observation: Observation) -> Response:
    over = observation.error and observation.done and observation.text == OVER
    text = observation.text if observation.text or not observation.error else FAILED
    return JSONResponse({"text": text, "error": observation.error, "done": observation.done}, 409 if over else 200)


def _refused(status: int, text: str) -> Response:
    return JSONResponse({"text": text, "error": True, "done": False}, status)
