"""A server of the Model Context Protocol without sessions: each message is answered by itself, as JSON.

The streamable HTTP transport of the protocol allows that. Only tools are served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tracewheel import __version__
from tracewheel.core.strict_json import parse_json
from tracewheel.environments import Observation

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
Answer = tuple[int, Any]


class McpAnswers:
    """Answers the messages of a client.

    Args:
        tools: In OpenAI's format.
        call: Carries out a call.
    """

    def __init__(self, tools: list[dict[str, Any]], call: Callable[[str, dict[str, Any]], Awaitable[Observation]]) -> None:
        self._tools, self._call = tools, call

    async def answer(self, body: bytes) -> Answer:
        """The HTTP status and the answer to a message, or to a list of them; None where there is nothing to say."""
        try:
            message = parse_json(body.decode())
        except ValueError:
            return 400, _error(None, PARSE_ERROR, "the body is no JSON")
        if not isinstance(message, list):
            found = await self._one(message)
            return (202, None) if found is None else (400 if found.get("id", 0) is None else 200, found)
        answers = [found for one in message if (found := await self._one(one)) is not None]
        return (200, answers) if answers else (202, None)

    async def _one(self, message: Any) -> dict[str, Any] | None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _error(None, INVALID_REQUEST, "a message is a JSON object with jsonrpc '2.0'")
        method, number = message.get("method"), message.get("id")
        if method is None or number is None:  # an answer to nothing we asked, or a notification
            return None
        params = message.get("params") or {}
        if not isinstance(params, dict):
            return _error(number, INVALID_PARAMS, "params must be an object")
        match method:
            case "initialize":
                return _result(number, self._begin(params))
            case "ping":
                return _result(number, {})
            case "tools/list":
                return _result(number, {"tools": [_tool(tool["function"]) for tool in self._tools]})
            case "tools/call":
                return await self._called(number, params)
        return _error(number, METHOD_NOT_FOUND, f"there is no method {method!r} here")

    def _begin(self, params: dict[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "tracewheel", "version": __version__},
        }

    async def _called(self, number: Any, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return _error(number, INVALID_PARAMS, "a call has a 'name' and an object of 'arguments'")
        observation = await self._call(name, arguments)
        said = {"content": [{"type": "text", "text": observation.text}], "isError": observation.error}
        return _result(number, {**said, "_meta": {"done": True}} if observation.done else said)


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description", ""), "inputSchema": schema}


def _result(number: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
