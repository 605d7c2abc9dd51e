"""The bridge to an OpenEnv environment, in process or by URL. Runs in a Python with `openenv`; tried with 0.10.0.

An environment with MCP tools offers these. Another takes actions of one type: its fields are the arguments of one tool, `act`.
"""

from __future__ import annotations

import importlib
import json
import urllib.request
from typing import Any

LIST, CALL = {"type": "list_tools"}, "call_tool"
ACT = "act"


class World:
    """One episode."""

    def open(self, args: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
        self._rewards: list[float] = []
        self._done = False
        self._names: set[str] = set()
        self._make(args)
        observation = self._reset(start)
        return {"tools": self._tools(args), "text": _text(observation), "system": ""}

    def step(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        if self._done:
            return {"text": "error: the episode is over", "error": True, "done": True}
        if self._mcp:
            if tool not in self._names:
                return {"text": f"error: no tool named {tool[:64]}", "error": True}
            return self._act({"type": CALL, "tool_name": tool, "arguments": args})
        if tool != ACT:
            return {"text": f"error: no tool named {tool[:64]}", "error": True}
        return self._act(args)

    def close(self) -> dict[str, Any]:
        """The state, and the environment's own verdict: its last reward, and their sum."""
        state = self._env.state
        state = state() if callable(state) else state
        self._env.close()
        found = state if isinstance(state, dict) else state.model_dump(mode="json")
        found.pop("episode_id", None)  # of chance
        rewards = self._rewards
        parts = {"sum": sum(rewards), "last": rewards[-1]} if rewards else {}
        return {"state": found, "verdict": {"reward": rewards[-1] if rewards else None, "parts": parts}, "done": self._done}

    def _make(self, args: dict[str, Any]) -> None:
        self._url = args.get("url") or ""
        if self._url:
            from openenv.core.generic_client import GenericEnvClient

            self._env = GenericEnvClient(base_url=self._url).sync()
            self._env.connect()
            with urllib.request.urlopen(f"{self._url.rstrip('/')}/schema", timeout=30) as reply:
                self._schema = json.load(reply)["action"]
            self._mcp = self._schema.get("title") in ("CallToolAction", "ListToolsAction", "Action")
            return
        from openenv.core.env_server.mcp_environment import MCPEnvironment

        self._env = _named(args["environment"])(**args.get("arguments", {}))
        self._mcp = isinstance(self._env, MCPEnvironment)
        self._action: Any = None if self._mcp else _named(args["action"])
        self._schema = {} if self._action is None else self._action.model_json_schema()

    def _reset(self, start: dict[str, Any]) -> Any:
        found = self._env.reset(**start)
        return found.observation if self._url else found

    def _tools(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        if self._mcp:
            tools = [_dumped(tool) for tool in _field(self._send(LIST), "tools")]
            self._names = {tool["name"] for tool in tools}
            return [_tool(tool["name"], tool.get("description") or "", tool.get("input_schema") or {}) for tool in tools]
        fields = {name: value for name, value in self._schema.get("properties", {}).items() if name != "metadata"}
        schema = {"type": "object", "properties": fields, "required": self._schema.get("required", [])}
        if "$defs" in self._schema:
            schema["$defs"] = self._schema["$defs"]
        return [_tool(ACT, self._schema.get("description") or "Take an action.", schema)]

    def _act(self, action: dict[str, Any]) -> dict[str, Any]:
        try:
            observation = self._send(action)
        except (TypeError, ValueError) as error:  # an action that its type refuses is the agent's mistake
            return {"text": f"error: {error}", "error": True}
        reward, done = _field(observation, "reward"), bool(_field(observation, "done"))
        if reward is not None:
            self._rewards.append(float(reward))
        self._done = done
        return {"text": _text(observation), "done": done, "error": bool(_field(observation, "error"))}

    def _send(self, action: dict[str, Any]) -> Any:
        if self._url:
            result = self._env.step(action)
            return {**result.observation, "reward": result.reward, "done": result.done}
        if self._mcp:
            from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction

            kind = ListToolsAction if action is LIST else CallToolAction
            return self._env.step(kind.model_validate(action))
        return self._env.step(self._action.model_validate(action))


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _dumped(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = value if isinstance(value, dict) else value.model_dump(mode="json")
    return found


def _field(observation: Any, name: str) -> Any:
    return observation.get(name) if isinstance(observation, dict) else getattr(observation, name, None)


def _text(observation: Any) -> str:
    """What the agent reads: a single text as it is, several fields as JSON; not the reward, which is for the verifier."""
    shown = {name: value for name, value in _dumped(observation).items() if name not in ("reward", "done", "metadata")}
    shown = {name: value for name, value in shown.items() if value is not None}
    if "tool_name" in shown:
        shown.pop("tool_name")
        result = shown.get("result")
        shown = (
            {"result": result.get("data", result) if isinstance(result, dict) else result} if "error" not in shown else shown
        )
    only = next(iter(shown.values())) if len(shown) == 1 else None
    return only if isinstance(only, str) else json.dumps(shown, ensure_ascii=False, default=str) if shown else ""


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
