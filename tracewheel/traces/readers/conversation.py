"""From the model calls of one trace to its conversation.

A tracer logs each call of a model with the whole conversation so far. The calls that continue one another are one
conversation; a trace may hold several, when agents call agents. The longest is the trace, the others are kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracewheel.traces.readers.dialects import parsed, tie_calls


@dataclass
class ModelCall:
    """One call of a model: what it was given and what it said, as chat messages. `start` orders the calls."""

    start: float
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class ToolRun:
    """One run of a tool, as logged apart from the conversation. `result` is None where the log has none."""

    start: float
    name: str | None
    call_id: str | None
    result: str | None


@dataclass
class Conversation:
    """What the calls come to: messages, tools and model of the longest conversation, and the messages of the others."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    model: str | None
    others: list[list[dict[str, Any]]]


def join_calls(calls: list[ModelCall], runs: list[ToolRun]) -> Conversation:
    """The conversations of a trace. Of two that are as long, the first is the trace.

    Args:
        calls: The model calls; spans that wrap others may repeat what these say.
        runs: The tools' runs; they give the replies that no later model call was shown.
    """
    threads: list[_Thread] = []
    for call in sorted(calls, key=lambda call: call.start):
        messages = tie_calls([*call.inputs, *call.outputs])
        said = [_essence(message) for message in messages]
        if not said:
            continue
        earlier = [thread for thread in threads if thread.said == said[: len(thread.said)]]
        if earlier:
            max(earlier, key=lambda thread: len(thread.said)).go_on(messages, said, call)
        elif not any(said == thread.said[: len(said)] for thread in threads):
            threads.append(_Thread(messages, said, call.model, list(call.tools)))
        else:
            repeated = next(thread for thread in threads if said == thread.said[: len(said)])
            repeated.learn(call)
    if not threads:
        return Conversation([], [], None, [])
    main = max(threads, key=lambda thread: len(thread.said))
    others = [thread.messages for thread in threads if thread is not main]
    return Conversation(add_replies(main.messages, runs), main.tools, main.model, others)


@dataclass
class _Thread:
    messages: list[dict[str, Any]]
    said: list[Any]
    model: str | None
    tools: list[dict[str, Any]]

    def go_on(self, messages: list[dict[str, Any]], said: list[Any], call: ModelCall) -> None:
        # Earlier calls are the better witnesses of their own turns: later ones repeat less of them.
        self.messages, self.said = [*self.messages, *messages[len(self.said) :]], said
        self.learn(call)

    def learn(self, call: ModelCall) -> None:
        self.model = call.model or self.model
        names = {tool["function"]["name"] for tool in self.tools}
        self.tools += [tool for tool in call.tools if tool["function"]["name"] not in names]


def _essence(message: Any) -> Any:
    """What makes two logged messages the same: who says what and calls what, whatever the ids."""
    if not isinstance(message, dict):
        return repr(message)
    calls = message.get("tool_calls")
    functions = [call["function"] for call in calls] if isinstance(calls, list) else []
    # Who writes the arguments again may write them otherwise.
    called = [[function["name"], parsed(function["arguments"])] for function in functions]
    return [message.get("role"), message.get("content") or "", called]


def add_replies(messages: list[dict[str, Any]], runs: list[ToolRun]) -> list[dict[str, Any]]:
    """The messages with a reply for each call that has none but was run: by the call's id, or else by the tool's name."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    waiting = [run for run in sorted(runs, key=lambda run: run.start) if run.call_id not in answered and run.result is not None]
    completed: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        completed.append(message)
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        following = messages[position + 1 :]
        replied = {reply.get("tool_call_id") for reply in _replies_at_once(following)}
        for call in calls if isinstance(calls, list) else []:
            if call.get("id") in replied:
                continue
            name = call["function"]["name"]
            run = next((run for run in waiting if run.call_id == call["id"]), None)
            run = run or next((run for run in waiting if run.call_id is None and run.name == name), None)
            if run is not None:
                waiting.remove(run)
                completed.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": run.result})
    return completed


def _replies_at_once(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    replies = []
    for message in messages:
        if message.get("role") != "tool":
            break
        replies.append(message)
    return replies
