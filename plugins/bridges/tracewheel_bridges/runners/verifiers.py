"""The bridge to a taskset of Prime Intellect's verifiers, version 1. Runs in a Python with `verifiers`; tried with 0.4.0.

A task's tool methods are called in this process, and its own rewards score the conversation at the end, without a runtime.
"""

from __future__ import annotations

import asyncio
import inspect
from itertools import islice
from typing import Any


class World:
    """One episode, or the list of the tasks."""

    def open(self, args: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
        import verifiers.v1 as vf

        self._vf, taskset = vf, self._taskset(args)
        self._task: Any = next(islice(iter(taskset), start["index"], None), None)
        if self._task is None:
            raise IndexError(f"the taskset has no task {start['index']}")
        self._tools: dict[str, Any] = {}
        for toolset in [*type(taskset).toolsets(taskset.config), *type(self._task).toolsets(self._task.config)]:
            prefix = getattr(toolset, "TOOL_PREFIX", "") or ""
            for function in _decorated(toolset):
                self._tools[f"{prefix}_{function.__name__}" if prefix else function.__name__] = function
        data = self._task.data
        self._messages = [vf.SystemMessage(content=data.system_prompt)] if data.system_prompt else []
        self._messages.append(vf.UserMessage(content=data.prompt_text))
        return {
            "tools": [_schema(name, function) for name, function in self._tools.items()],
            "text": "",
            "system": data.system_prompt,
        }

    def step(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        function = self._tools.get(tool)
        call = self._vf.ToolCall(id=f"call-{len(self._messages)}", name=tool, arguments=_json(args))
        self._messages.append(self._vf.AssistantMessage(content=None, tool_calls=[call]))
        if function is None:
            text, failed = f"error: no tool named {tool[:64]}", True
        else:
            try:
                text, failed = str(_done(function(**args))), False
            except (TypeError, ValueError, KeyError) as error:
                text, failed = f"error: {error}", True
        self._messages.append(self._vf.ToolMessage(tool_call_id=call.id, content=text))
        return {"text": text, "error": failed}

    def reply(self, text: str) -> dict[str, Any]:
        """The agent's answer, which ends the episode: no user answers in a taskset."""
        self._messages.append(self._vf.AssistantMessage(content=text))
        return {"text": "", "done": True}

    def close(self) -> dict[str, Any]:
        """The verdict: the task's own weighted rewards of the conversation, and its metrics."""
        from verifiers.v1.configs.agent import AgentConfig
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        nodes = [
            MessageNode(parent=at - 1 if at else None, message=message, sampled=message.role == "assistant")
            for at, message in enumerate(self._messages)
        ]
        task = TraceTask(type=type(self._task).__name__, data=self._task.data)
        trace = Trace(task=task, agent=AgentInfo(config=AgentConfig()), nodes=nodes)
        asyncio.run(self._task.score(trace))
        unscored = [name for name, reward in trace.rewards.items() if reward is None]
        parts = {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
        parts |= {name: value for name, value in trace.metrics.items() if value is not None}
        return {"state": {}, "verdict": {"reward": None if unscored or not trace.rewards else trace.reward, "parts": parts}}

    def tasks(self, args: dict[str, Any], count: int) -> list[dict[str, Any]]:
        """The first tasks. Their answers stay here: a task is named by its place."""
        found = islice(iter(self._taskset(args)), count)
        return [
            {"start": {"index": index}, "prompt": task.data.prompt_text, "name": task.data.name or "", "key": task.key}
            for index, task in enumerate(found)
        ]

    def _taskset(self, args: dict[str, Any]) -> Any:
        import importlib

        module, _, name = args["taskset"].partition(":")
        kind = getattr(importlib.import_module(module), name)
        from verifiers.v1.configs.taskset import TasksetConfig
        from verifiers.v1.utils.generic import concrete_type

        config = concrete_type(kind, TasksetConfig) or TasksetConfig
        return kind(config(**args.get("config", {})))


def _decorated(toolset: Any) -> list[Any]:
    from verifiers.v1.utils.decorators import discover_decorated

    return list(discover_decorated(toolset, "tool"))


def _done(value: Any) -> Any:
    async def awaited() -> Any:
        return await value

    return asyncio.run(awaited()) if inspect.isawaitable(value) else value


def _schema(name: str, function: Any) -> dict[str, Any]:
    from pydantic import TypeAdapter

    schema = TypeAdapter(function).json_schema()
    description = (function.__doc__ or "").strip()
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
