"""Reads LangChain's message dumps: a list of messages, or an object with `messages` and, where logged, its `config`.

`messages_to_dict`, `dumpd` and a message's `model_dump` are read. A `RunnableConfig` beside them gives the session (its
`thread_id`) and the user.
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import Place, RawTrace, build_trace, list_field, message_list, object_field, text_field
from tracewheel.traces.readers.langchain_messages import flat, is_conversation, is_message, read_messages
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.readers.tools import as_tools

FORMAT = "langchain"
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


READERS = (
    Reader(FORMAT, recognises, read),
    Reader(FORMAT, is_message, read_list, "list", is_whole=is_conversation),
)
