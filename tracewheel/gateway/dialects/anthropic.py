"""Anthropic's Messages: requests and answers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tracewheel.gateway.dialects.answer_forms import anthropic_form
from tracewheel.gateway.dialects.dialect import Asked, Dialect, Event, Said, call_pieces, content_pieces, reasoning_pieces
from tracewheel.gateway.dialects.fields import (
    Fields,
    assistant,
    check_calls,
    checked_tools,
    part_text,
    refuse,
    text_of,
    tool_call,
    tool_reply,
    wrong_type,
    wrong_value,
)
from tracewheel.gateway.dialects.known_tools import known_tool
from tracewheel.gateway.dialects.tool_choice import ToolChoice, choose
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Message, Refusal
from tracewheel.traces.readers.content import arguments_text
from tracewheel.traces.readers.messages import read_arguments

WRAPPED = "INVALID_JSON"  # the key under which the vendor advises to send back arguments that are no object
BILLING = "x-anthropic-billing-header:"
ROLES = ("user", "assistant", "system")


def system_text(fields: Fields) -> str:
    """The system prompt, a text or blocks.

    Claude Code's block for billing is left out, as by the vendor: it changes with each request, so that no two histories
    would begin alike.
    """
    system = fields.get("system")
    if not isinstance(system, list):
        return text_of(fields, "system")
    texts = [part_text(part) for part in fields.objects("system")]
    return "".join(text for text in texts if not text.startswith(BILLING))


def read_messages(fields: Fields) -> tuple[list[Message], str]:
    """The messages in one form, and what the turn begins with where the last is the assistant's (a prefill).

    The vendor's combine where an assistant's follow each other, and so do these.

    Raises:
        Refusal: there are none, or one is wrong.
    """
    if fields.get("messages") is None:
        raise fields.missing("messages")
    messages: list[Message] = []
    pending: list[_Turn] = []
    last = ""
    for message in fields.objects("messages"):
        last = message.text("role")
        if last not in ROLES:
            raise wrong_value(last, ROLES, message.at("role"))
        if last == "assistant":
            turn = pending[0] if pending else _Turn()
            if (summary := turn.add(message)) is not None:  # what came before a compaction is not read any more
                messages = [{"role": "user", "content": summary}]
            pending = [turn] if summary is None or turn.says else []
            continue
        messages += [turn.message() for turn in pending]
        pending = []
        messages += _said_by_user(message) if last == "user" else [{"role": last, "content": text_of(message, "content")}]
    if not last:
        raise refuse("at least one message is required", "messages")
    prefill = ""
    if pending:
        messages.append(pending[0].message())
        if not messages[-1].get("tool_calls") and messages[-1]["content"]:
            prefill = messages.pop()["content"]
    return messages, prefill


class _Turn:
    """What the assistant said, from one or several messages."""

    def __init__(self) -> None:
        self._text, self._thought, self._calls = "", "", list[dict[str, Any]]()

    def add(self, message: Fields) -> str | None:
        """Add a message's blocks; gives the summary of a compaction, before which nothing counts."""
        summary = None
        for block in _logged_blocks(message):
            if isinstance(block, str):
                self._text += block
                continue
            match block.text("type"):
                case "thinking":
                    self._thought += block.text("thinking")
                case "redacted_thinking":
                    raise refuse("this endpoint has made no redacted thinking, and cannot read it", block.at("type"))
                case "tool_use":
                    self._calls.append(tool_call(block.text("id"), block.text("name"), _arguments(block.needed("input"))))
                case "compaction":
                    summary, self._text, self._thought, self._calls = text_of(block, "content"), "", "", []
                case _:
                    self._text += part_text(block)
        return summary

    @property
    def says(self) -> bool:
        """Whether there is anything in it."""
        return bool(self._text or self._thought or self._calls)

    def message(self) -> Message:
        """The message in one form."""
        return assistant(self._text, self._thought, self._calls)


def _arguments(given: Fields) -> str:
    wrapped = given.get(WRAPPED)
    return wrapped if isinstance(wrapped, str) and len(given.value) == 1 else arguments_text(given.value)


def _said_by_user(message: Fields) -> list[Message]:
    """The results of tools, and after them what the user said."""
    results: list[Message] = []
    texts: list[str] = []
    for block in _logged_blocks(message):
        if isinstance(block, str):
            texts.append(block)
        elif block.text("type") == "tool_result":
            results.append(tool_reply(block.text("tool_use_id"), _result(block)))
        else:
            texts.append(_user_text(block))
    return [*results, {"role": "user", "content": "".join(texts)}] if texts or not results else results


def _logged_blocks(message: Fields) -> list[Fields | str]:
    content = message.get("content")
    if content is None:
        raise message.missing("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise wrong_type(content, "one of a string or array of objects", message.at("content"))
    return list(message.objects("content"))


def _result(block: Fields) -> str:
    """A tool's result; a failure without words says that it is one."""
    if isinstance(block.get("content"), list):
        text = "".join(_user_text(part) for part in block.objects("content"))
    else:
        text = text_of(block, "content")
    return text or ("error" if block.flag("is_error") else "")


def _user_text(block: Fields) -> str:
    """The text of a block; a document's may be parts of text."""
    source = block.inner("source")
    if source is not None and source.get("type") == "content":
        return text_of(source, "content")
    return part_text(block)


READ = {"messages", "model", "max_tokens", "system", "stop_sequences", "stream", "temperature", "top_p", "tools", "tool_choice"}
READ |= {"output_config", "output_format", "context_management"}
# What is for the vendor's own accounts, caches and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"metadata", "service_tier", "cache_control", "thinking", "inference_geo", "speed", "diagnostics"}
WITHOUT_EFFECT |= {"user_profile_id", "workspace_id"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "container": (),
    "mcp_servers": ([],),
}
STOPS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}
ERRORS = {
    "invalid_request": "invalid_request_error",
    "context_length_exceeded": "invalid_request_error",
    "authentication": "authentication_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "server_error": "api_error",
    "overloaded": "overloaded_error",
}
OVERLOADED, TOO_LONG = 529, "prompt is too long"
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class AnthropicMessages(Dialect):
    """The dialect of `/v1/messages`."""

    def read(self, body: Any, said: Said) -> Asked:
        """See `Dialect`."""
        fields = Fields(body)
        if fields.whole("max_tokens", 1) is None:
            raise fields.missing("max_tokens")
        return self._read(fields)

    def read_for_count(self, body: Any) -> ChatRequest:
        """The request whose tokens are to be counted: as `read`, without `max_tokens`."""
        return self._read(Fields(body), counted=True).request

    def _read(self, fields: Fields, *, counted: bool = False) -> Asked:
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        form = anthropic_form(fields)
        _read_edits(fields)
        choice, parallel = _tool_choice(fields)
        messages, prefill = read_messages(fields)
        if not counted:
            check_calls(messages, "messages")
        if system := system_text(fields):
            messages.insert(0, {"role": "system", "content": system})
        request = ChatRequest(
            messages,
            choice.tools,
            model=fields.text("model"),
            max_tokens=fields.whole("max_tokens", 1),
            temperature=fields.number("temperature", 0.0, 1.0),
            top_p=fields.number("top_p", 0.0, 1.0),
            stop=fields.texts("stop_sequences"),
            tool=choice.tool,
            must_call=choice.must_call,
            parallel=parallel,
            prefill=prefill,
            form=form,
            dropped=frozenset(fields.dropped),
        )
        return Asked(request, fields.value, fields.flag("stream"))

    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> dict[str, Any]:
        """See `Dialect`."""
        reply = replies[0]
        return {
            **_head(asked, reply),
            "content": _blocks(asked, reply),
            "stop_reason": _stop_reason(reply),
            "stop_sequence": reply.stop_sequence,
            "usage": {**_input_usage(reply), "output_tokens": len(reply.tokens)},
        }

    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """See `Dialect`."""
        reply = replies[0]
        message = {**_head(asked, reply), "content": [], "stop_reason": None, "stop_sequence": None}
        message["usage"] = {**_input_usage(reply), "output_tokens": 0}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
        for index, block in enumerate(_blocks(asked, reply)):
            opened, deltas = _opened(block, reply)
            events.append({"type": "content_block_start", "index": index, "content_block": opened})
            events += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
            events.append({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": _stop_reason(reply), "stop_sequence": reply.stop_sequence}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": len(reply.tokens)}})
        events.append({"type": "message_stop"})
        return [Event(data["type"], data) for data in events]

    def status(self, refusal: Refusal) -> int:
        """See `Dialect`."""
        return OVERLOADED if refusal.kind == "overloaded" else refusal.status

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """See `Dialect`. The vendor has no field for what is at fault: the message begins with it."""
        message = refusal.message
        if refusal.kind == "context_length_exceeded" and TOO_LONG not in message:
            message = f"{TOO_LONG}: {message}"
        if refusal.param is not None:
            place = re.sub(r"\[(\d+)\]", r".\1", refusal.param)
            message = f"{place}: {message}"
        return {"type": "error", "error": {"type": ERRORS[refusal.kind], "message": message}, "request_id": request_id}

    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """See `Dialect`."""
        return Event("error", self.error(refusal, request_id))


def _head(asked: Asked, reply: ChatReply) -> dict[str, Any]:
    return {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": asked.request.model}


def _blocks(asked: Asked, reply: ChatReply) -> list[dict[str, Any]]:
    """What was said as blocks. Arguments that are no object are wrapped, as the vendor advises for broken ones."""
    blocks: list[dict[str, Any]] = []
    if thought := reply.message.get("reasoning_content"):
        signature = base64.b64encode(reply.id.encode()).decode()
        blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
    if text := (reply.message.get("content") or "").removeprefix(asked.request.prefill):
        blocks.append({"type": "text", "text": text, "citations": None})
    for call in reply.message.get("tool_calls") or ():
        function = call["function"]
        given = read_arguments(function["arguments"])
        made = {WRAPPED: function["arguments"]} if given is None else given
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": made})
    return blocks


def _opened(block: dict[str, Any], reply: ChatReply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        pieces = content_pieces(replace(reply, message={**reply.message, "content": block["text"]}))
        deltas = [{"type": "text_delta", "text": piece.text} for piece in pieces]
        return {**block, "text": ""}, deltas
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece.text} for piece in reasoning_pieces(reply)]
        return {**block, "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text} for text in _input_pieces(block, reply)]


def _input_pieces(block: dict[str, Any], reply: ChatReply) -> Iterator[str]:
    """A call's input as text: as sampled, or as it was wrapped."""
    yield ""  # as the vendor begins
    calls = reply.message["tool_calls"]
    text = next(call["function"]["arguments"] for call in calls if call["id"] == block["id"])
    yield from call_pieces(arguments_text(block["input"]) if WRAPPED in block["input"] else text)


def _stop_reason(reply: ChatReply) -> str:
    return "stop_sequence" if reply.stop_sequence is not None else STOPS[reply.finish_reason]


def _input_usage(reply: ChatReply) -> dict[str, Any]:
    """Tokens of the context: the vendor counts those read from its cache apart."""
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens,
    }


def _read_edits(fields: Fields) -> None:
    """Nothing is cleared or summarised on the way: a history that the vendor would cut is read whole."""
    management = fields.inner("context_management")
    for edit in management.objects("edits") if management else ():
        kind = edit.text("type")
        if (kind, edit.get("keep")) != ("clear_thinking_20251015", "all"):
            fields.dropped.add(f"context_management.{kind}")


def _tool_choice(fields: Fields) -> tuple[ToolChoice, bool]:
    offered: list[dict[str, Any]] = []
    for tool in fields.objects("tools"):
        if (kind := tool.optional_text("type")) not in (None, "custom"):
            known = known_tool(kind, tool.text("name")) if tool.get("name") else None
            offered += [known] if known else []
            fields.dropped |= set() if known else {f"tools.{kind}"}
            continue
        if not TOOL_NAME.fullmatch(tool.text("name")):
            raise refuse(f"String should match pattern '^{TOOL_NAME.pattern}$'", tool.at("name"))
        tool.needed("input_schema")
        tool.optional_text("description")
        offered.append(tool.value)
    tools = checked_tools(offered)
    choice = fields.inner("tool_choice")
    if choice is None:
        return choose(tools, "auto", "tool_choice"), True
    parallel = not choice.flag("disable_parallel_tool_use")
    match choice.text("type"):
        case "tool":
            return choose(tools, "required", "tool_choice", [choice.text("name")]), parallel
        case "any":
            return choose(tools, "required", "tool_choice"), parallel
        case "auto" | "none" as mode:
            return choose(tools, mode, "tool_choice"), parallel
        case other:
            raise wrong_value(other, ["auto", "any", "tool", "none"], "tool_choice.type")
