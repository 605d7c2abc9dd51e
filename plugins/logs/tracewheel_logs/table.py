"""Reads rows of tables with a column that holds a conversation, as data sets in Parquet and JSONL have them.

The conversation is a list of messages or its JSON text (SWE-smith's `messages`, Toucan's `messages`, `trajectory` and
others). Other columns are fields, by their usual names, or go to `info`. Values that Parquet fills in as null are left out.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    is_chat_message,
    parsed_json,
    tie_calls,
)
from tracewheel_logs import sharegpt

FORMAT = "table"
COLUMNS = ("messages", "conversations", "conversation", "trajectory", "traj", "dialogue", "dialog", "history", "chat", "turns")
TOOLS = ("tools", "available_tools", "functions")


def recognises_text(value: Any) -> bool:
    """Whether a column holds the JSON text of a conversation."""
    name = conversation_column(value)
    return name is not None and isinstance(value[name], str)


def recognises(value: Any) -> bool:
    """Whether a column holds a conversation under a name that no other reader takes."""
    name = conversation_column(value)
    return name is not None and name not in ("messages", "conversations")


def conversation_column(value: Any) -> str | None:
    """The first of `COLUMNS` that holds a list of messages, or the JSON text of one."""
    if not isinstance(value, dict):
        return None
    return next((name for name in COLUMNS if name in value and _is_conversation(parsed_json(value[name]))), None)


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
        return False
    return all("from" in message and "value" in message for message in value) or all(map(is_chat_message, value))


def read(value: Any, place: Place) -> Trace:
    """The trace of one row.

    Raises:
        InvalidRecord: it cannot be read.
    """
    name = conversation_column(value) or "messages"
    messages = without_nulls(parsed_json(value[name]))
    tools_name = next((key for key in TOOLS if value.get(key)), "tools")
    info = {key: part for key, part in value.items() if key not in (name, tools_name)}
    if isinstance(messages, list) and messages and "from" in messages[0]:
        conversation, tools = sharegpt.conversation(messages, value.get(tools_name))
    else:
        conversation, tools = tie_calls(as_chat(messages)), as_tools(value.get(tools_name))
    return build_trace(FORMAT, place, RawTrace(conversation, tools=tools, info=info))


def without_nulls(value: Any) -> Any:
    """Without the nulls of objects; a text that is null in a message with calls is missing just the same."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


READERS = (Reader(FORMAT, recognises_text, read), Reader(FORMAT, recognises, read, signs=Signs.GENERAL))
