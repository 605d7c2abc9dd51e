"""The environment `mcp`: the tools of an MCP server are the tools of the episode."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path, PurePosixPath
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, content_hash
from tracewheel.environments.base import Observation, ToolFailure
from tracewheel.environments.mcp.session import FILES, McpArgs, McpSession


class McpEnvironment:
    """The tools of an MCP server: those it lists are the episode's, and the text of a result is the observation.

    ```yaml
    environment:
      kind: mcp
      args:
        command: [mcp-server-sqlite, --db-path, "{folder}/shop.db"]
        state: {tool: read_query, arguments: {query: "select * from orders"}}
    ```

    With `command`, each episode starts a server of its own and has a folder of its own, `{folder}`, which is deleted with it;
    with `url`, all episodes share one that runs. The program starts in an empty folder: one that looks for its code where it
    starts would run what a log says. A task's `initial_state` may have `files`, texts by path in `{folder}`, and `calls`, a
    list of `{"tool", "arguments"}` that are made before the agent begins. A server that crashes, hangs or breaks the protocol
    ends the episode without a score, and the fault is the tool's.

    State: `{"calls": [{"tool", "arguments", "text", "error"}], "state": text}`; without `state` or `resource` the calls alone.
    """

    kind = "mcp"
    tool_threads = 64  # servers answer when they answer
    reaches = True
    Args = McpArgs

    def __init__(self, args: McpArgs) -> None:
        self._args = args
        self.system_prompt = args.system_prompt
        self._session: McpSession | None = None
        self._tools: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._end: weakref.finalize[Any, McpEnvironment] | None = None

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        start, goal = logged.get("initial_state") or {}, logged.get("goal") or {}
        if not isinstance(start, dict) or not isinstance(goal, dict):
            raise DataError("'initial_state' and 'goal' are to be objects")
        _check_start(start)
        name = content_hash([self.kind, prompt, start, goal])
        return Task(
            id=f"mcp-{name}",
            environment=self.kind,
            family=str(logged.get("family") or "mcp"),
            tier=int(logged.get("tier") or 1),
            prompt=prompt,
            initial_state=start,
            goal=goal,
            verifier=str(logged.get("verifier") or ""),
            fingerprint=name,
        )

    def tools(self) -> list[dict[str, Any]]:
        """The server's tools; before `reset` none is known, for none runs."""
        return self._tools

    def reset(self, task: Task) -> None:
        """Start a server, or connect to the shared one, and prepare it as the task says.

        Raises:
            ToolFailure: it does not start, lacks a tool that is named, or a call of the preparation fails.
            DataError: the task's files or calls are of another form.
        """
        self.close()
        files, calls = _check_start(task.initial_state)
        folder = tempfile.TemporaryDirectory(prefix="tracewheel-mcp-", ignore_cleanup_errors=True)
        for path, text in files.items():
            place = Path(folder.name, FILES, *PurePosixPath(path).parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        session = McpSession(self._args, folder)
        self._session, self._calls = session, []
        # An environment that nobody holds any more ends its server.
        self._end = weakref.finalize(self, session.close)
        self._tools = self._offered(session.tools)
        for call in calls:
            reply = session.call(call["tool"], call.get("arguments") or {})
            if reply.error:
                raise ToolFailure(f"preparing the task: tool {call['tool']} failed: {reply.text}")

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """Call a tool. A mistake that the server reports is the agent's to read; a failure of the server ends the episode."""
        names = [one["function"]["name"] for one in self._tools]
        if tool not in names:
            return self._log(tool, args, f"error: no tool named {tool[:64]}", error=True)
        try:
            reply = self._running().call(tool, args)
        except ToolFailure as failure:
            return Observation(str(failure), error=True, fault="tool")
        return self._log(tool, args, reply.text, error=reply.error)

    def snapshot(self) -> dict[str, Any]:
        """The calls, and what the server says of its state.

        Raises:
            ToolFailure: it says nothing.
        """
        state: dict[str, Any] = {"calls": [dict(call) for call in self._calls]}
        if self._args.state:
            reply = self._running().call(self._args.state.tool, self._args.state.arguments)
            if reply.error:
                raise ToolFailure(f"reading the state: tool {self._args.state.tool} failed: {reply.text}")
            state["state"] = reply.text
        elif self._args.resource:
            state["state"] = self._running().read(self._args.resource)
        return state

    def close(self) -> None:
        """Let the server that was started end; its folder goes with it."""
        if self._end is not None:
            self._end()
        self._session, self._end, self._tools = None, None, []

    def _running(self) -> McpSession:
        if self._session is None:
            raise ToolFailure("no server runs: `reset` has not been called, or it failed")
        return self._session

    def _offered(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._args.tools is None:
            return tools
        by_name = {tool["function"]["name"]: tool for tool in tools}
        if missing := [name for name in self._args.tools if name not in by_name]:
            raise ToolFailure(f"the server has no tool {', '.join(missing)}; it has {', '.join(by_name)}")
        return [by_name[name] for name in self._args.tools]

    def _log(self, tool: str, args: dict[str, Any], text: str, *, error: bool) -> Observation:
        self._calls.append({"tool": tool, "arguments": args, "text": text, "error": error})
        return Observation(text, error=error)


def _check_start(start: dict[str, Any]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The files and the calls of a task's start.

    Raises:
        DataError: they are of another form, or a file is to lie outside the episode's folder.
    """
    files, calls = start.get("files") or {}, start.get("calls") or []
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise DataError("'initial_state.files' is to be an object of texts by path")
    for path in files:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise DataError(f"'initial_state.files': {path!r} lies outside the episode's folder; give a path in it")
    if not isinstance(calls, list) or not all(isinstance(call, dict) and isinstance(call.get("tool"), str) for call in calls):
        raise DataError("'initial_state.calls' is to be a list of objects with 'tool' and 'arguments'")
    return files, calls
