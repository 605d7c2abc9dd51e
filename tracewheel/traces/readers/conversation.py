"""Conversations from parts: what SDKs log one after another (`Dialogue`), and the model calls of one trace (`join_calls`).

A tracer logs each model call with the whole conversation so far. Calls that continue one another are one conversation. A
trace may hold several, when agents call agents: the longest becomes the trace, the others are kept in `info`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from tracewheel.core.endings import UNFINISHED, ending, how_unfinished, with_ending
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.content import as_text, identity_of, tool_call
from tracewheel.traces.readers.dialects import parsed_json, tie_calls

THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


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
    main = max(threads, key=lambda thread: (len(thread.keys), not how_unfinished(thread.messages[-1])))
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


def message_key(message: Any) -> Any:
    """Equal for two logs of the same message: its role, text and calls, without ids."""
    if not isinstance(message, dict):
        return repr(message)
    calls = message.get("tool_calls")
    functions = [call["function"] for call in calls] if isinstance(calls, list) else []
    # A later call may format the same arguments differently.
    called = [[function["name"], parsed_json(function["arguments"])] for function in functions]
    return [message.get("role"), message.get("content") or "", called]


def add_replies(messages: list[dict[str, Any]], runs: list[ToolRun]) -> list[dict[str, Any]]:
    """Add the results of tool runs to calls without a reply, matched by call id, or else by name and arguments."""
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
            named = [run for run in waiting if run.call_id is None and run.name == name]
            given = parsed_json(call["function"]["arguments"])
            run = run or next((run for run in named if run.arguments is not None and run.arguments == given), None)
            run = run or next(iter(named), None)
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


class Dialogue:
    """A conversation in the making. The agent's text, reasoning and calls go to its current turn, or begin one.

    A turn ends when anyone else speaks, a tool replies, or `end_turn` is called.
    """

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._open = False

    @property
    def turn(self) -> dict[str, Any]:
        """The agent's current turn; a new one if it has ended."""
        if not self._open or not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": None})
            self._open = True
        return self._messages[-1]

    def end_turn(self) -> None:
        """Let what the agent says next begin a turn of its own."""
        self._open = False

    def said(self, role: str, text: str) -> None:
        """Add a message of the system, the developer or the user; the agent's is a turn of its own."""
        if role == "assistant":
            self.end_turn()
            self.text(text)
        else:
            self._messages.append({"role": role, "content": text})
        self._open = False

    def text(self, text: str) -> None:
        """Add text to the agent's turn."""
        turn = self.turn
        turn["content"] = (turn["content"] or "") + text

    def thought(self, text: str) -> None:
        """Add reasoning to the agent's turn. None of an empty text: providers log reasoning that they hide."""
        if text:
            turn = self.turn
            turn["reasoning"] = turn.get("reasoning", "") + text

    def called(self, identity: Any, name: Any, arguments: Any) -> None:
        """Add a call to the agent's turn; arguments are an object or JSON text. An id may be missing."""
        self.turn.setdefault("tool_calls", []).append(tool_call(identity_of(identity), name, arguments))

    def replied(self, identity: Any, name: Any, content: Any) -> None:
        """Add a tool's reply; content that is not text becomes JSON text."""
        reply = {"role": "tool", "tool_call_id": identity_of(identity), "content": as_text(content)}
        if isinstance(name, str) and name:
            reply["name"] = name
        self._messages.append(reply)
        self._open = False

    def extend(self, messages: list[dict[str, Any]]) -> None:
        """Add whole messages in chat form."""
        self._messages += messages
        self._open = False

    def ended(self, *holders: Any) -> None:
        """If what was said last is a turn of the agent, mark it as one of these objects says that it ended (`ending`)."""
        if self._messages and self._messages[-1]["role"] == "assistant" and (mark := ending(*holders)):
            self._messages[-1][UNFINISHED] = mark

    @property
    def has_said(self) -> bool:
        """Whether the agent's current turn has text or calls: what follows is another turn."""
        return self._open and bool(self._messages) and bool(self._messages[-1]["content"] or "tool_calls" in self._messages[-1])

    def messages(self) -> list[dict[str, Any]]:
        """The conversation, with ids made where the log has none: replies go to the open calls of their name in order.

        Turns of the agent whose results all follow the last of them are one: it said something between its calls.
        """
        return tie_calls(_with_parallel_calls(self._messages))


def _with_parallel_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    joined: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        before = joined[-1] if joined else {}
        if message["role"] == before.get("role") == "assistant" and before.get("tool_calls"):
            replied = {reply.get("tool_call_id") for reply in _replies_at_once(messages[position + 1 :])}
            if all(call["id"] in replied for call in before["tool_calls"]):
                joined[-1] = one_turn(before, message)
                continue
        joined.append(message)
    return joined


def one_turn(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two parts of a turn of the agent as one message."""
    texts = {key: "\n\n".join(filter(None, (one.get(key), other.get(key)))) for key in ("content", "reasoning")}
    calls = [*one.get("tool_calls", ()), *other.get("tool_calls", ())]
    turn = {**one, **other, "content": texts["content"] or None}
    return turn | {key: part for key, part in (("tool_calls", calls), ("reasoning", texts["reasoning"])) if part}


def unreadable(what: str, kind: Any) -> InvalidRecord:
    """The error for a part of a message that a text model cannot read, or that no reader knows."""
    return InvalidRecord("content is not text", f"{what} of type {kind!r:.60}")


def history_hashes(messages: Iterable[dict[str, Any]]) -> list[bytes]:
    """A hash of each beginning of a conversation: the k-th is of its first k messages.

    It takes no notice of ids, of white space around a text, of the order of arguments, or of thoughts: clients change or drop
    these when they send a turn back.
    """
    hashes: list[bytes] = []
    last = b""
    for message in messages:
        role, text, calls = message_key(message)
        text = parsed_json(text) if role == "tool" else text  # a result that is an object, too, may come back in another order
        text = THOUGHT.sub("", text).strip() if role == "assistant" and isinstance(text, str) else text
        last = blake2b(
            last + orjson.dumps([role, text, calls], default=str, option=orjson.OPT_SORT_KEYS), digest_size=16
        ).digest()
        hashes.append(last)
    return hashes
