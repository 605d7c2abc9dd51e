"""The model calls of one trace as its conversation (`join_calls`).

A tracer logs each model call with the whole conversation so far. Calls that continue one another are one conversation. A
trace may hold several, when agents call agents: the longest becomes the trace, the others are kept in `info`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracewheel import as_text, message_key, parsed_json, tie_calls, with_ending
from tracewheel_logs.dialogue import replies_at_once


@dataclass
class ModelCall:
    """One model call: its inputs and outputs as chat messages. `start` orders the calls.

    `ended` is the mark of a call that was cut or failed (`ending`, `failed_by`), "" of any other.
    """

    start: float
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""


@dataclass
class ToolRun:
    """One run of a tool, logged outside the conversation. `result` (it becomes text) and `arguments` are None if not logged."""

    start: float
    name: str | None
    call_id: str | None
    result: Any
    arguments: Any = None

    def __post_init__(self) -> None:
        self.result = None if self.result is None else as_text(self.result)


@dataclass
class Conversation:
    """Messages, tools and model of a trace's longest conversation, and the messages of its other conversations."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    model: str | None
    others: list[list[dict[str, Any]]]


def join_calls(calls: list[ModelCall], runs: list[ToolRun]) -> Conversation:
    """Join model calls into conversations. Ties for the longest go to the first.

    Args:
        calls: The model calls; a wrapping span may repeat the messages of the spans in it.
        runs: Tool runs; they supply the replies that no later model call shows.
    """
    threads: list[_Thread] = []
    for call in sorted(calls, key=lambda call: call.start):
        messages = with_ending(tie_calls([*call.inputs, *call.outputs]), call.ended)
        keys = [message_key(message) for message in messages]
        if not keys:
            continue
        earlier = [thread for thread in threads if thread.keys == keys[: len(thread.keys)]]
        if earlier:
            max(earlier, key=lambda thread: len(thread.keys)).extend(messages, keys, call)
        elif not any(keys == thread.keys[: len(keys)] for thread in threads):
            threads.append(_Thread(messages, keys, call.model, list(call.tools)))
        else:
            repeated = next(thread for thread in threads if keys == thread.keys[: len(keys)])
            repeated.add_model_and_tools(call)
    if not threads:
        return Conversation([], [], None, [])
    # Of a call and its repetition the one counts that has an answer, and a whole one.
    main = max(threads, key=lambda thread: (len(thread.keys), "unfinished" not in thread.messages[-1]))
    others = [thread.messages for thread in threads if thread is not main]
    return Conversation(add_replies(main.messages, runs), main.tools, main.model, others)


@dataclass
class _Thread:
    """A conversation in the making; `keys` identify its messages."""

    messages: list[dict[str, Any]]
    keys: list[Any]
    model: str | None
    tools: list[dict[str, Any]]

    def extend(self, messages: list[dict[str, Any]], keys: list[Any], call: ModelCall) -> None:
        # Keep the earlier calls' own turns: later calls repeat them with fewer details.
        self.messages, self.keys = [*self.messages, *messages[len(self.keys) :]], keys
        self.add_model_and_tools(call)

    def add_model_and_tools(self, call: ModelCall) -> None:
        self.model = call.model or self.model
        names = {tool["function"]["name"] for tool in self.tools}
        self.tools += [tool for tool in call.tools if tool["function"]["name"] not in names]


def add_replies(messages: list[dict[str, Any]], runs: list[ToolRun]) -> list[dict[str, Any]]:
    """Add the results of tool runs to calls without a reply, matched by call id, or else by name and arguments."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    waiting = [run for run in sorted(runs, key=lambda run: run.start) if run.call_id not in answered and run.result is not None]
    completed: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        completed.append(message)
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        following = messages[position + 1 :]
        replied = {reply.get("tool_call_id") for reply in replies_at_once(following)}
        for call in calls if isinstance(calls, list) else []:
            if call.get("id") in replied:
                continue
            name = call["function"]["name"]
            run = next((run for run in waiting if run.call_id == call["id"]), None)
            named = [run for run in waiting if run.call_id is None and run.name == name]
            given = parsed_json(call["function"]["arguments"])
            run = run or next((run for run in named if run.arguments is not None and run.arguments == given), None)
            run = run or next(iter(named), None)
            if run is not None:
                waiting.remove(run)
                completed.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": run.result})
    return completed
