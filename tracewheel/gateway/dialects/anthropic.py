"""Anthropic's Messages: requests and answers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel.gateway.dialects.anthropic_messages import WRAPPED, read_messages, system_text
from tracewheel.gateway.dialects.dialect import Asked, Dialect, Event
from tracewheel.gateway.dialects.fields import Fields, refuse, unsupported, wrong_value
from tracewheel.gateway.dialects.messages import check_calls, checked_tools
from tracewheel.gateway.dialects.pieces import call_pieces, content_pieces, reasoning_pieces
from tracewheel.gateway.dialects.said import Said
from tracewheel.gateway.dialects.tool_choice import ToolChoice, choose
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal
from tracewheel.traces.readers.content import arguments_text
from tracewheel.traces.readers.messages import read_arguments

READ = {"messages", "model", "max_tokens", "system", "stop_sequences", "stream", "temperature", "top_p", "tools", "tool_choice"}
READ |= {"output_config"}
# What is for the vendor's own accounts, caches and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"metadata", "service_tier", "cache_control", "thinking", "inference_geo", "speed", "diagnostics"}
WITHOUT_EFFECT |= {"user_profile_id", "workspace_id"}
# Claude Code asks to keep all thinking, which is what happens.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "container": (),
    "top_k": (),
    "mcp_servers": ([],),
    "context_management": ({}, {"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    "output_format": (),
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
        return self._read(Fields(body)).request

    def _read(self, fields: Fields) -> Asked:
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        output = fields.inner("output_config")
        if output is not None and output.get("format") is not None:
            raise unsupported("the model's text cannot be held to a schema here; offer a tool instead", output.at("format"))
        choice, parallel = _tool_choice(fields)
        messages = read_messages(fields)
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
        )
        return Asked(request, fields.value, fields.flag("stream"))

    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> dict[str, Any]:
        """See `Dialect`."""
        reply = replies[0]
        return {
            **_head(asked, reply),
            "content": _blocks(reply),
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
        for index, block in enumerate(_blocks(reply)):
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


def _blocks(reply: ChatReply) -> list[dict[str, Any]]:
    """What was said as blocks. Arguments that are no object are wrapped, as the vendor advises for broken ones."""
    blocks: list[dict[str, Any]] = []
    if thought := reply.message.get("reasoning_content"):
        signature = base64.b64encode(reply.id.encode()).decode()
        blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
    if text := reply.message.get("content"):
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
        deltas = [{"type": "text_delta", "text": piece.text} for piece in content_pieces(reply)]
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


def _tool_choice(fields: Fields) -> tuple[ToolChoice, bool]:
    for tool in fields.objects("tools"):
        if tool.optional_text("type") not in (None, "custom"):
            text = "this endpoint has no tools of its own; declare a tool with a name and an input_schema"
            raise unsupported(text, tool.at("type"))
        if not TOOL_NAME.fullmatch(tool.text("name")):
            raise refuse(f"String should match pattern '^{TOOL_NAME.pattern}$'", tool.at("name"))
        tool.needed("input_schema")
        tool.optional_text("description")
    tools = checked_tools(fields.listed("tools"))
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
