"""Reads Pydantic AI's messages, as `all_messages_json` writes them: requests to the model and its responses, with parts.

A retry prompt that names a tool is that tool's reply; one without is the user's. Instructions come before the conversation.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_text,
    as_tools,
    build_trace,
    list_field,
    object_field,
    read_parts,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue, unreadable

FORMAT = "pydantic_ai"
KINDS = ("request", "response")
KEYS = ("messages", "all_messages", "message_history", "_state")
READ = {*KEYS, "tools"}
# Notes for the framework; the model reads none of them.
SILENT = {"compaction", "instruction-baseline", "instruction-digest", "model-settings-delta", "tool-availability-delta"}
SILENT |= {"capability-load-delta"}


def is_message(value: Any) -> bool:
    """Whether this is a message of Pydantic AI."""
    if not isinstance(value, dict) or value.get("kind") not in KINDS or not isinstance(value.get("parts"), list):
        return False
    return all(isinstance(part, dict) and isinstance(part.get("part_kind"), str) for part in value["parts"])


def is_whole(values: Any) -> bool:
    """Whether this is a list of messages of Pydantic AI."""
    return isinstance(values, list) and bool(values) and all(map(is_message, values))


def recognises(value: Any) -> bool:
    """Whether this is an object with such messages."""
    return isinstance(value, dict) and any(is_whole(value.get(key)) for key in KEYS)


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(next(value[key] for key in KEYS if is_whole(value.get(key))), value, place)


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(value, {}, place)


def _trace(messages: list[Any], value: dict[str, Any], place: Place) -> Trace:
    dialogue = Dialogue()
    instructions = next((one["instructions"] for one in messages if isinstance(one.get("instructions"), str)), None)
    if instructions:
        dialogue.said("system", instructions)
    for message in messages:
        dialogue.end_turn()
        for part in message["parts"]:
            _read_part(part, dialogue)
        dialogue.ended(message)
    responses = [one for one in messages if one["kind"] == "response"]
    times = [time for one in messages for time in (one.get("timestamp"), *(part.get("timestamp") for part in one["parts"]))]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            dialogue.messages(),
            tools=as_tools(list_field(value, "tools")),
            session=next((text for one in messages if (text := text_field(one, "conversation_id"))), None),
            created=min((time for time in times if isinstance(time, str)), default=None),
            model=next((text for one in reversed(responses) if (text := text_field(one, "model_name"))), None),
            info={key: part for key, part in value.items() if key not in READ}
            | {
                "run_ids": list(dict.fromkeys(one["run_id"] for one in messages if isinstance(one.get("run_id"), str))),
                "finish_reason": responses[-1].get("finish_reason") if responses else None,
                "metadata": object_field(messages[-1], "metadata") or value.get("metadata"),
            },
        ),
    )


def _read_part(part: dict[str, Any], dialogue: Dialogue) -> None:
    kind, content = part["part_kind"], part.get("content")
    match kind:
        case "system-prompt":
            dialogue.said("system", as_text(content))
        case "instruction-delta":
            dialogue.said("system", as_text(content))
        case "retry-feedback":
            dialogue.said("user", as_text(content))
        case "user-prompt":
            dialogue.said("user", _prompt(content))
        case "text":
            dialogue.text(as_text(content))
        case "thinking":
            dialogue.thought(as_text(content))
        case "tool-call" | "builtin-tool-call" | "native-tool-call":
            dialogue.called(part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
        case "tool-return" | "builtin-tool-return" | "native-tool-return":
            dialogue.replied(part.get("tool_call_id"), part.get("tool_name"), _plain(content))
        case "retry-prompt":
            if part.get("tool_name"):
                dialogue.replied(part.get("tool_call_id"), part["tool_name"], as_text(content))
            else:
                dialogue.said("user", as_text(content))
        case _ if kind not in SILENT:
            raise unreadable("a part", kind)


def _prompt(content: Any) -> str:
    """A user's prompt: text, or a list of text and files, for which placeholders stand.

    Raises:
        InvalidRecord: it has anything else.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for item in content if isinstance(content, list) else [content]:
        kind = item.get("kind") if isinstance(item, dict) else None
        if kind == "cache-point":
            continue
        text = item.get("content", item.get("text")) if kind in ("text", "text-content") else _placeholder(item) or item
        if not isinstance(text, str):
            raise unreadable("a prompt's item", kind if isinstance(item, dict) else type(item).__name__)
        texts.append(text)
    return "\n".join(texts)


def _placeholder(item: Any) -> str | None:
    """What stands for a file; None for anything else."""
    kind = item.get("kind") if isinstance(item, dict) else None
    if kind == "binary":
        kind = as_text(item.get("media_type")).partition("/")[0]
    elif not isinstance(kind, str) or not kind.endswith("-url"):
        return None
    kind = kind.removesuffix("-url")
    media = {key: part for key, part in item.items() if key in ("data", "url") or (key == "media_type" and kind != "text")}
    return read_parts({"type": kind if kind in ("image", "audio", "video") else "file", **media}).text


def _plain(content: Any) -> Any:
    """A result, with placeholders for files."""
    if isinstance(content, list):
        return [_placeholder(item) or item for item in content]
    return _placeholder(content) or content


READERS = (
    Reader(FORMAT, recognises, read, signs=Signs.NAMED),
    Reader(FORMAT, is_message, read_list, "list", Signs.NAMED, is_whole),
)
