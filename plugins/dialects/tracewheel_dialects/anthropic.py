"""Anthropic's Messages: requests and answers."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel import (
    AnswerForm,
    Asked,
    ChatReply,
    ChatRequest,
    Dialect,
    Event,
    Fields,
    Refusal,
    Said,
    ToolCall,
    ToolChoice,
    chat_message,
)
from tracewheel_dialects.known_tools import known_tool

BILLING = "x-anthropic-billing-header:"
ROLES = ("user", "assistant", "system")


def system_text(fields: Fields) -> str:
    """The system prompt, a text or blocks.

    Claude Code's block for billing is left out, as by the vendor: it changes with each request, so that no two histories
    would begin alike.
    """
    system = fields.get("system")
    if not isinstance(system, list):
        return fields.content("system")
    texts = [part.part_text() for part in fields.objects("system")]
    return "".join(text for text in texts if not text.startswith(BILLING))


def read_messages(fields: Fields) -> tuple[list[dict[str, Any]], str]:
    """The messages in one form, and what the turn begins with where the last is the assistant's (a prefill).

    The vendor's combine where an assistant's follow each other, and so do these.

    Raises:
        Refusal: there are none, or one is wrong.
    """
    if fields.get("messages") is None:
        raise fields.missing("messages")
    messages: list[dict[str, Any]] = []
    pending: list[_Turn] = []
    last = ""
    for message in fields.objects("messages"):
        last = message.text("role")
        if last not in ROLES:
            raise Refusal.wrong_value(last, ROLES, message.at("role"))
        if last == "assistant":
            turn = pending[0] if pending else _Turn()
            if (summary := turn.add(message)) is not None:  # what came before a compaction is not read any more
                messages = [chat_message("user", summary)]
            pending = [turn] if summary is None or turn.says else []
            continue
        messages += [turn.message() for turn in pending]
        pending = []
        messages += _said_by_user(message) if last == "user" else _said_by_system(message)
    if not last:
        raise Refusal.invalid("at least one message is required", "messages")
    prefill = ""
    if pending:
        messages.append(pending[0].message())
        if not messages[-1].get("tool_calls") and messages[-1]["content"]:
            prefill = messages.pop()["content"]
    return messages, prefill


class _Turn:
    """What the assistant said, from one or several messages."""

    def __init__(self) -> None:
        self._text, self._thought, self._calls = "", "", list[ToolCall]()

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
                    raise Refusal.invalid("this endpoint has made no redacted thinking, and cannot read it", block.at("type"))
                case "tool_use":
                    self._calls.append(ToolCall.given(block.text("id"), block.text("name"), block.needed("input").value))
                case "compaction":
                    summary, self._text, self._thought, self._calls = block.content("content"), "", "", []
                case _:
                    self._text += block.part_text()
        return summary

    @property
    def says(self) -> bool:
        """Whether there is anything in it."""
        return bool(self._text or self._thought or self._calls)

    def message(self) -> dict[str, Any]:
        """The message in one form."""
        return chat_message("assistant", self._text, reasoning=self._thought, calls=self._calls)


def _said_by_user(message: Fields) -> list[dict[str, Any]]:
    """The results of tools, and after them what the user said."""
    results: list[dict[str, Any]] = []
    texts: list[str] = []
    for block in _logged_blocks(message):
        if isinstance(block, str):
            texts.append(block)
        elif block.text("type") == "tool_result":
            results.append(chat_message("tool", _result(block), call_id=block.text("tool_use_id")))
        else:
            texts.append(_user_text(block))
    return [*results, chat_message("user", "".join(texts))] if texts or not results else results


def _said_by_system(message: Fields) -> list[dict[str, Any]]:
    """What the system says. That a tool is offered from here on is no news: here all of them always are."""
    blocks = [one for one in _logged_blocks(message) if isinstance(one, str) or one.text("type") != "tool_addition"]
    texts = [one if isinstance(one, str) else one.part_text() for one in blocks]
    return [chat_message("system", "".join(texts))] if texts else []


def _logged_blocks(message: Fields) -> list[Fields | str]:
    content = message.get("content")
    if content is None:
        raise message.missing("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise Refusal.wrong_type(content, "one of a string or array of objects", message.at("content"))
    return list(message.objects("content"))


def _result(block: Fields) -> str:
    """A tool's result; a failure without words says that it is one."""
    if isinstance(block.get("content"), list):
        text = "".join(_user_text(part) for part in block.objects("content"))
    else:
        text = block.content("content")
    return text or ("error" if block.flag("is_error") else "")


def _user_text(block: Fields) -> str:
    """The text of a block; a document's may be parts of text, and of a tool that was found it is the name."""
    if block.get("type") == "tool_reference":
        return block.text("tool_name")
    source = block.inner("source")
    if source is not None and source.get("type") == "content":
        return source.content("content")
    return block.part_text()


READ = {"messages", "model", "max_tokens", "system", "stop_sequences", "stream", "temperature", "top_p", "tools", "tool_choice"}
READ |= {"output_config", "output_format", "context_management"}
# What is for the vendor's own accounts, caches and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"metadata", "service_tier", "cache_control", "thinking", "inference_geo", "speed", "diagnostics"}
WITHOUT_EFFECT |= {"user_profile_id", "workspace_id"}
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
EARLIEST = "1970-01-01T00:00:00Z"  # the vendor wants a date of each model; these have none
OVERLOADED, TOO_LONG = 529, "prompt is too long"
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class AnthropicMessages(Dialect):
    """The dialect of `/v1/messages`."""

    PATHS = ("/messages",)
    COUNT_PATHS = ("/messages/count_tokens",)

    @classmethod
    def speaks(cls, path: str, headers: Mapping[str, str]) -> bool:
        """See `Dialect`."""
        return "anthropic-version" in headers or "/messages" in path

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
        fields.check_known(READ | WITHOUT_EFFECT, {})
        form = _answer_form(fields)
        _read_edits(fields)
        choice, parallel = _tool_choice(fields)
        messages, prefill = read_messages(fields)
        if system := system_text(fields):
            messages.insert(0, chat_message("system", system))
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
        if not counted:
            request.check_calls("messages")
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
            opened, deltas = _opened(block, asked, reply)
            events.append({"type": "content_block_start", "index": index, "content_block": opened})
            events += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
            events.append({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": _stop_reason(reply), "stop_sequence": reply.stop_sequence}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": len(reply.tokens)}})
        events.append({"type": "message_stop"})
        return [Event(data["type"], data) for data in events]

    def write_model(self, name: str) -> dict[str, Any]:
        """See `Dialect`."""
        return {"type": "model", "id": name, "display_name": name, "created_at": EARLIEST, "lifecycle": "active"}

    def write_models(self, names: Sequence[str]) -> dict[str, Any]:
        """See `Dialect`."""
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return {"data": [self.write_model(name) for name in names], "has_more": False, **ends}

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
    if thought := reply.reasoning:
        signature = base64.b64encode(reply.id.encode()).decode()
        blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
    if text := reply.text.removeprefix(asked.request.prefill):
        blocks.append({"type": "text", "text": text, "citations": None})
    blocks += ({"type": "tool_use", "id": call.id, "name": call.name, "input": call.value} for call in reply.calls)
    return blocks


def _opened(block: dict[str, Any], asked: Asked, reply: ChatReply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        pieces = reply.content_pieces(after=asked.request.prefill)
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece.text} for piece in pieces]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece.text} for piece in reply.reasoning_pieces()]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
    call = next(call for call in reply.calls if call.id == block["id"])
    texts = ["", *call.pieces(call.object_text)]  # as the vendor begins
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text} for text in texts]


def _stop_reason(reply: ChatReply) -> str:
    return "stop_sequence" if reply.stop_sequence is not None else STOPS[reply.finish_reason]


def _input_usage(reply: ChatReply) -> dict[str, Any]:
    """Tokens of the context: the vendor counts those read from its cache apart."""
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens,
    }


def _answer_form(fields: Fields) -> AnswerForm | None:
    """The form of the answer, by its present and its former name; None for any text."""
    output = fields.inner("output_config")
    given = (output.inner("format") if output is not None else None) or fields.inner("output_format")
    if given is None:
        return None
    if given.text("type") != "json_schema":
        raise Refusal.wrong_value(given.text("type"), ["json_schema"], given.at("type"))
    given.needed("schema")
    return given.schema_form()


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
            raise Refusal.invalid(f"String should match pattern '^{TOOL_NAME.pattern}$'", tool.at("name"))
        tool.needed("input_schema")
        tool.optional_text("description")
        offered.append(tool.value)
    choice = fields.inner("tool_choice")
    if choice is None:
        return ToolChoice.of(offered, "auto", "tool_choice"), True
    parallel = not choice.flag("disable_parallel_tool_use")
    match choice.text("type"):
        case "tool":
            return ToolChoice.of(offered, "required", "tool_choice", [choice.text("name")]), parallel
        case "any":
            return ToolChoice.of(offered, "required", "tool_choice"), parallel
        case "auto" | "none" as mode:
            return ToolChoice.of(offered, mode, "tool_choice"), parallel
        case other:
            raise Refusal.wrong_value(other, ["auto", "any", "tool", "none"], "tool_choice.type")
