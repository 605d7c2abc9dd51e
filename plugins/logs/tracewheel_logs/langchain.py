"""Reads LangChain's message dumps: a list of messages, or an object with `messages` and, where logged, its `config`.

LangChain's messages are read in all forms that it writes: `messages_to_dict`, `dumpd`'s constructors, and a message's
`model_dump`. A `RunnableConfig` beside them gives the session (its
`thread_id`) and the user.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_text,
    as_tools,
    build_trace,
    list_field,
    message_list,
    object_field,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue, unreadable

FORMAT = "langchain"
THOUGHTS = {"thinking", "reasoning", "redacted_thinking", "redacted-reasoning"}
KEYS = ("messages", "chat_history", "history")
READ = {*KEYS, "tools", "config"}


def recognises(value: Any) -> bool:
    """Whether this is an object with a list of LangChain messages."""
    return isinstance(value, dict) and any(is_conversation(value.get(key)) for key in KEYS)


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    key = next(key for key in KEYS if key in value)
    return messages_trace(FORMAT, message_list(value, key), value, place)


def messages_trace(format: str, messages: list[Any], value: dict[str, Any], place: Place) -> Trace:
    """The trace of LangChain messages and what lies beside them.

    Raises:
        InvalidRecord: it cannot be read.
    """
    config = object_field(value, "config")
    configurable, metadata = object_field(config, "configurable"), object_field(config, "metadata")
    return build_trace(
        format,
        place,
        RawTrace(
            read_messages(messages),
            tools=as_tools(list_field(value, "tools")),
            session=text_field(configurable, "thread_id", "session_id") or text_field(metadata, "thread_id", "session_id"),
            user=text_field(configurable, "user_id") or text_field(metadata, "user_id"),
            model=model_of(messages),
            info={key: part for key, part in value.items() if key not in READ}
            | {"metadata": metadata}
            | {"tags": config.get("tags")},
        ),
    )


def model_of(messages: list[Any]) -> str | None:
    """The model that the last message of the agent names."""
    for message in reversed(messages):
        about = object_field(flat(message) or {}, "response_metadata")
        for key in ("model_name", "model", "model_id"):
            if isinstance(about.get(key), str):
                return str(about[key])
    return None


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return messages_trace(FORMAT, value, {}, place)


KINDS = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
    "chat": "chat",
}
CHUNKS = {
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
CLASSES = {
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "ChatMessage": "chat",
    **CHUNKS,
}
TEXTS = {"text", "output_text", "input_text"}
CALL_PARTS = {"tool_use", "tool_call", "function_call", "input_json_delta", "tool_call_chunk", "invalid_tool_call"}


def flat(value: Any) -> dict[str, Any] | None:
    """A message's kind under `type` and its fields, from any of the forms; None if it is no LangChain message."""
    if not isinstance(value, dict):
        return None
    if value.get("lc") in (1, 2) and isinstance(value.get("kwargs"), dict):
        path = value.get("id")
        name = path[-1] if isinstance(path, list) and path else None
        return {**value["kwargs"], "type": name} if isinstance(name, str) and name in CLASSES else None
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in KINDS | CHUNKS:
        return None
    if isinstance(value.get("data"), dict) and "content" in value["data"]:
        return {**value["data"], "type": kind}
    return value if "content" in value and "role" not in value else None


def is_message(value: Any) -> bool:
    """Whether this is a LangChain message."""
    return flat(value) is not None


def is_conversation(values: Any) -> bool:
    """Whether this is a list of LangChain messages."""
    return isinstance(values, list) and bool(values) and all(map(is_message, values))


def read_messages(values: list[Any]) -> list[dict[str, Any]]:
    """The messages in chat form.

    Raises:
        InvalidRecord: one of them cannot be read.
    """
    dialogue = Dialogue()
    for position, value in enumerate(values):
        message = flat(value)
        if message is None:
            raise InvalidRecord("message unreadable", f"message {position} is no message of LangChain")
        _read(message, dialogue)
    return dialogue.messages()


def _read(message: dict[str, Any], dialogue: Dialogue) -> None:
    role = (KINDS | CLASSES)[message["type"]]
    if role == "chat":
        role = KINDS.get(str(message.get("role")), "user")
    text, reasoning, in_content = _content(message.get("content"))
    if role == "tool":
        dialogue.replied(message.get("tool_call_id"), message.get("name"), text)
        return
    if role != "assistant":
        dialogue.said(role, text or "")
        return
    dialogue.end_turn()
    turn = dialogue.turn
    extra = message.get("additional_kwargs") if isinstance(message.get("additional_kwargs"), dict) else {}
    assert isinstance(extra, dict)
    hidden = extra.get("reasoning_content") or _summary(extra.get("reasoning"))
    dialogue.thought(reasoning or (hidden if isinstance(hidden, str) else ""))
    if text:
        dialogue.text(text)
    elif isinstance(extra.get("refusal"), str):
        dialogue.text(extra["refusal"])
    _read_calls(message, extra, in_content, dialogue)
    dialogue.ended(message)
    assert turn["role"] == "assistant"


def _read_calls(message: dict[str, Any], extra: dict[str, Any], in_content: list[Any], dialogue: Dialogue) -> None:
    """Read the calls: LangChain's own, those it could not parse, or, of older versions, the provider's."""
    own, invalid = list_field(message, "tool_calls"), list_field(message, "invalid_tool_calls")
    for call in [*own, *invalid]:
        if not isinstance(call, dict):
            raise InvalidRecord("tool calls unreadable", "a call is not an object")
        function = call["function"] if isinstance(call.get("function"), dict) else call
        dialogue.called(call.get("id"), function.get("name"), function.get("args", function.get("arguments")))
    if own or invalid:
        return
    provided = extra.get("tool_calls") or in_content
    for call in provided if isinstance(provided, list) else []:
        if not isinstance(call, dict):
            raise InvalidRecord("tool calls unreadable", "a call is not an object")
        function = call["function"] if isinstance(call.get("function"), dict) else call
        given = next((function[key] for key in ("arguments", "args", "input") if function.get(key) is not None), None)
        dialogue.called(call.get("call_id") or call.get("id"), function.get("name"), given)
    if isinstance(extra.get("function_call"), dict):
        dialogue.called(None, extra["function_call"].get("name"), extra["function_call"].get("arguments"))


def _content(content: Any) -> tuple[str | None, str, list[Any]]:
    """Text, reasoning, and the calls that a provider's content blocks repeat.

    Raises:
        InvalidRecord: a block is not text.
    """
    if content is None or isinstance(content, str):
        return content, "", []
    if not isinstance(content, list):
        return as_text(content), "", []
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Any] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str | None):
            raise unreadable("a content block", kind)
        if isinstance(block, str):
            texts.append(block)
        elif kind in TEXTS or (kind is None and isinstance(block, dict) and isinstance(block.get("text"), str)):
            texts.append(as_text(block.get("text")))
        elif kind == "refusal":
            texts.append(as_text(block.get("refusal")))
        elif kind in THOUGHTS:
            found = [block[key] for key in ("reasoning", "thinking", "text") if isinstance(block.get(key), str)]
            thoughts.append(found[0] if found else _summary(block))
        elif kind in CALL_PARTS:
            calls.append(block)
        elif isinstance(block, dict) and kind == "json" and "json" in block:
            texts.append(as_text(block["json"]))
        else:
            raise unreadable("a content block", kind)
    return "".join(texts) if texts else None, "".join(thoughts), calls


def _summary(reasoning: Any) -> str:
    parts = reasoning.get("summary") if isinstance(reasoning, dict) else None
    return "".join(as_text(part.get("text")) for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ""


READERS = (
    Reader(FORMAT, recognises, read),
    Reader(FORMAT, is_message, read_list, "list", is_whole=is_conversation),
)
