"""Reads rows of tables with a column that holds a conversation, as data sets in Parquet and JSONL have them.

The conversation is a list of messages or its JSON text (SWE-smith's `messages`, Toucan's `messages`, `trajectory` and
others), or a question and its answer in columns of their own (Alpaca's `instruction`, `input` and `output`). Other columns
are fields, by their usual names, or go to `info`. Values that Parquet fills in as null are left out.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
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
PAIRS = (("prompt", "completion"), ("prompt", "response"), ("prompt", "chosen"), ("", "chosen"), ("", "chosen_messages"))
# Alpaca's rows, and those of Swift and others, with what may stand beside them: the second part of the instruction, earlier
# exchanges as pairs, and the system prompt.
INSTRUCTED = (("instruction", "output"), ("query", "response"))
INPUT, HISTORY, SYSTEM = "input", "history", "system"
COLUMNS = ("messages", "conversations", "conversation", "trajectory", "traj", "dialogue", "dialog", "history", "chat", "turns")
NOT_PAIRS = ("messages", "conversations", "conversation", "choices", "observations", "run_type", "contents")
TOOLS = ("tools", "available_tools", "functions")


def recognises_text(value: Any) -> bool:
    """Whether a column holds the JSON text of a conversation."""
    name = conversation_column(value)
    return name is not None and isinstance(value[name], str)


def recognises(value: Any) -> bool:
    """Whether a column holds a conversation under a name that no other reader takes."""
    name = conversation_column(value)
    if name == "conversations":
        return "from" not in parsed_json(value[name])[0]
    return name != "messages" and (name is not None or _pair_of(value) is not None)


def _pair_of(value: Any) -> tuple[str, str] | None:
    """The columns of what was asked and what was answered; of a row of preferences the answer that was chosen."""
    if not isinstance(value, dict) or any(name in value for name in NOT_PAIRS):
        return None
    for asked, answered in PAIRS:
        needed = (answered, asked or answered, answered.replace("chosen", "rejected"))
        if not all(name in value for name in needed):
            continue
        sides = [parsed_json(value[name]) for name in (asked, answered) if name]
        if any(map(_is_conversation, sides)) and all(isinstance(side, str) or _is_conversation(side) for side in sides):
            return asked, answered
        if all(isinstance(side, str) for side in sides) and asked and answered in ("completion", "chosen"):
            return asked, answered
    return next((pair for pair in INSTRUCTED if all(isinstance(value.get(name), str) for name in pair)), None)


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
    if name not in value and (pair := _pair_of(value)):
        return _read_pair(value, pair, place)
    messages = without_nulls(parsed_json(value[name]))
    tools_name = next((key for key in TOOLS if value.get(key)), "tools")
    info = {key: part for key, part in value.items() if key not in (name, tools_name)}
    if isinstance(messages, list) and messages and "from" in messages[0]:
        conversation, tools = sharegpt.conversation(messages, value.get(tools_name))
    else:
        conversation, tools = tie_calls(as_chat(messages)), as_tools(value.get(tools_name))
    return build_trace(FORMAT, place, RawTrace(conversation, tools=tools, info=info))


def _read_pair(value: dict[str, Any], pair: tuple[str, str], place: Place) -> Trace:
    asked, answered = (without_nulls(parsed_json(value[name])) if name else [] for name in pair)
    if pair in INSTRUCTED:
        return _read_instructed(value, pair, place)
    given, said = as_chat(asked, "user"), as_chat(answered, "assistant")
    # A chosen answer may repeat the prompt.
    whole = said if said[: len(given)] == given else [*given, *said]
    tools_name = next((key for key in TOOLS if value.get(key)), "tools")
    info = {key: part for key, part in value.items() if key not in (*pair, tools_name)}
    return build_trace(FORMAT, place, RawTrace(tie_calls(whole), tools=as_tools(value.get(tools_name)), info=info))


def _read_instructed(value: dict[str, Any], pair: tuple[str, str], place: Place) -> Trace:
    messages = [{"role": "system", "content": value[SYSTEM]}] if value.get(SYSTEM) else []
    for exchange in value.get(HISTORY) or []:
        if not isinstance(exchange, list) or len(exchange) != 2 or not all(isinstance(text, str) for text in exchange):
            raise InvalidRecord("message unreadable", f"'{HISTORY}' is no list of pairs of texts: [[question, answer], …]")
        messages += [{"role": "user", "content": exchange[0]}, {"role": "assistant", "content": exchange[1]}]
    asked = "\n".join(text for text in (value[pair[0]], value.get(INPUT)) if text)
    messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": value[pair[1]]}]
    used = {*pair, INPUT, HISTORY, SYSTEM}
    return build_trace(FORMAT, place, RawTrace(messages, info={key: part for key, part in value.items() if key not in used}))


def without_nulls(value: Any) -> Any:
    """Without the nulls of objects; a text that is null in a message with calls is missing just the same."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


READERS = (Reader(FORMAT, recognises_text, read), Reader(FORMAT, recognises, read, signs=Signs.GENERAL))
