"""A connection to an MCP server through the official client, for code that is not asynchronous.

One thread of the process runs the event loop of all connections. Each connection is a task of its own, in which the client is
entered, used and left, as its library demands.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tracewheel.core.errors import ConfigError
from tracewheel.environments.base import ToolFailure


class Call(BaseModel):
    """A call of one of the server's tools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    arguments: dict[str, Any] = {}


class McpArgs(BaseModel):
    """Which server, and how its end state is read.

    Attributes:
        command: The server's program and its arguments; each episode starts one of its own. `{folder}` in an argument is the
            episode's folder; the program starts in an empty one.
        url: Instead, the address of a running server (streamable HTTP), which all episodes share.
        env: Variables of the program's environment. Of ours it gets only PATH, HOME and the like.
        headers: Headers of each request to `url`.
        tools: Names of the tools that the agent may use; None is all.
        state: A call whose reply, at the end, is the episode's state.
        resource: Instead, the address of a resource that is read at the end.
        start_seconds: How long the server may take to start and to list its tools.
        call_seconds: How long a call may take.
        system_prompt: What the agent is told first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    tools: tuple[str, ...] | None = None
    state: Call | None = None
    resource: str = ""
    start_seconds: float = Field(30.0, gt=0)
    call_seconds: float = Field(60.0, gt=0)
    system_prompt: str = ""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either 'command' (a server for each episode) or 'url' (a server that runs)")
        if self.state and self.resource:
            raise ValueError("give either 'state' or 'resource', or neither: then the log of the calls is the state")
        if self.headers and not self.url:
            raise ValueError("'headers' are for a server at a 'url'; a command has 'env'")
        return self


T = TypeVar("T")
CLOSE_SECONDS = 10.0
ERRORS_SHOWN = 400
FILES, START = "files", "start"
_lock = threading.Lock()
_alive: set[McpSession] = set()
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process: a forked child has no thread of its parent's


@dataclass(frozen=True)
class Reply:
    """A tool's reply: its text, and whether the tool says that it failed."""

    text: str
    error: bool


class McpSession:
    """One connection, from its start to `close`.

    Args:
        args: The server.
        folder: Has a folder with the task's files, which `{folder}` in the arguments stands for, and an empty one where the
            program starts. It is deleted when the session has ended.

    Raises:
        ConfigError: the official client is not installed.
        ToolFailure: the server does not start, or does not answer as the protocol says.
    """

    def __init__(self, args: McpArgs, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._args, self._folder = args, folder
        self._name = args.url or args.command[0]
        _require_client()
        self._loop = _loop()
        # What the server says of its own accord, for the message where it crashes.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (it lives as long as this)
        self._ready: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._stop, self.ended = asyncio.Event(), threading.Event()
        _alive.add(self)
        self._task = asyncio.run_coroutine_threadsafe(self._live(), self._loop)
        try:
            self._client = self._ready.result(args.start_seconds)
            self.tools = self._ask(self._list, args.start_seconds, "tools/list")
        except concurrent.futures.TimeoutError as error:
            self.close()
            raise ToolFailure(f"MCP server {self._name}: did not start in {args.start_seconds:g} s{self._said()}") from error
        except ToolFailure:
            self.close()
            raise
        except Exception as error:  # whatever the connection's task ended with
            self.close()
            raise ToolFailure(f"MCP server {self._name}: did not start: {_why(error)}{self._said()}") from error

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        """Call a tool. An error that the server reports for the call is a reply.

        Raises:
            ToolFailure: the server crashed, took too long, or broke the protocol.
        """
        return self._ask(lambda: self._call(tool, arguments), self._args.call_seconds, f"tool {tool}")

    def read(self, uri: str) -> str:
        """The text of a resource.

        Raises:
            ToolFailure: the server has none there, crashed, or took too long.
        """
        return self._ask(lambda: self._read(uri), self._args.call_seconds, f"resource {uri}")

    def close(self) -> None:
        """Let the connection and its server end; `ended` is set when they have, and the folder is gone."""
        if self._ready.done():
            self._loop.call_soon_threadsafe(self._stop.set)
        else:
            self._task.cancel()

    def _ask(self, work: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
        from mcp import MCPError

        if self.ended.is_set():
            raise ToolFailure(f"MCP server {self._name}: it ended before {what}{self._said()}")
        asked = asyncio.run_coroutine_threadsafe(_within(work, seconds), self._loop)
        try:
            return asked.result()
        except TimeoutError as error:
            raise ToolFailure(f"MCP server {self._name}: {what} took longer than {seconds:g} s") from error
        except (MCPError, OSError, ValueError, RuntimeError, BaseExceptionGroup) as error:
            raise ToolFailure(f"MCP server {self._name}: {what}: {_why(error)}{self._said()}") from error

    async def _live(self) -> None:
        """The connection's task. What ends it before it is ready goes to who waits for it."""
        try:
            async with self._connect() as client:
                self._ready.set_result(client)
                await self._stop.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, Exception) else RuntimeError(_why(error)))
            raise
        finally:
            self._folder.cleanup()
            _alive.discard(self)
            self.ended.set()

    def _connect(self) -> Any:
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        if self._args.url:
            transport = streamable_http_client(self._args.url, http_client=create_mcp_http_client(self._args.headers or None))
        else:
            files, start = (Path(self._folder.name, name) for name in (FILES, START))
            for place in (files, start):
                place.mkdir(exist_ok=True)
            program, *rest = (part.replace("{folder}", str(files)) for part in self._args.command)
            server = StdioServerParameters(command=program, args=rest, env=self._args.env or None, cwd=start)
            transport = stdio_client(server, errlog=self._errors)
        return Client(transport, cache=None)

    async def _list(self) -> list[dict[str, Any]]:
        """The server's tools in OpenAI's form, all pages of them."""
        found, cursor = [], None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return [_as_tool(tool) for tool in found]

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        from mcp import MCPError

        try:
            result = await self._client.call_tool(tool, arguments)
        except MCPError as error:
            # What the server refuses (an unknown tool, arguments against the schema) is the agent's mistake.
            if error.code in (-32602, -32601):
                return Reply(str(error), error=True)
            raise
        return Reply("\n".join(_text(part) for part in result.content), bool(result.is_error))

    async def _read(self, uri: str) -> str:
        result = await self._client.read_resource(uri)
        return "\n".join(getattr(part, "text", None) or f"[{part.mime_type or 'binary'}]" for part in result.contents)

    def _said(self) -> str:
        """The last words of the server's error output."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - ERRORS_SHOWN * 4))
        text = self._errors.read()[-ERRORS_SHOWN:].strip()
        return f"; its error output ends: {text}" if text else ""


async def _within(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        return await work()


def _as_tool(tool: Any) -> dict[str, Any]:
    schema = {name: value for name, value in tool.input_schema.items() if name != "$schema"}
    return {"type": "function", "function": {"name": tool.name, "description": tool.description or "", "parameters": schema}}


def _text(part: Any) -> str:
    """A part of a result as text: what is no text is named, as the agent cannot read it."""
    if part.type == "text":
        return str(part.text)
    if part.type == "resource":
        return str(getattr(part.resource, "text", None) or f"[resource {part.resource.uri}]")
    if part.type == "resource_link":
        return f"[resource {part.uri}]"
    return f"[{part.type} {getattr(part, 'mime_type', '')}]".replace(" ]", "]")


def _why(error: BaseException) -> str:
    """The first cause in a group of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _require_client() -> None:
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "the environment 'mcp' needs the official client: pip install 'tracewheel[mcp]' -c constraints.txt"
        ) from error


@atexit.register
def _end_all() -> None:
    """End the servers of a process that ends, and delete their folders."""
    for session in list(_alive):
        session.close()
    for session in list(_alive):
        session.ended.wait(CLOSE_SECONDS)


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's connections, in a thread of its own."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="tracewheel-mcp", daemon=True).start()
            _loops[os.getpid()] = loop
        return loop
