"""Reads logs of Anthropic's messages API: `tool_use` and `tool_result` blocks, and a separate system prompt.

A record is a request with its messages. Requests with their responses are `requests`' to read.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    Place,
    RawTrace,
    Reader,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    message_list,
    object_field,
    read_parts,
    reward_field,
    text_field,
)

FORMAT = "anthropic"
BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use")
STOP_REASONS = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal")
READ = {"id", "session", "session_id", "user", "created", "model", "messages", "system", "tools", "reward", "task"}
READ |= {"metadata"}


def recognises(value: Any) -> bool:
    """Whether a record has a mark of Anthropic's API: its blocks, system prompt, tool schemas or stop reasons."""
    if not isinstance(value, dict):
        return False
    messages = value.get("messages")
    if not isinstance(messages, list):
        return False
    if isinstance(value.get("system"), str | list) or _has_own_tools(value.get("tools")):
        return True
    return value.get("stop_reason") in STOP_REASONS or any(map(_has_block, messages))


def _has_block(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(isinstance(part, dict) and part.get("type") in BLOCKS for part in content)


def _has_own_tools(tools: Any) -> bool:
    return isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    messages = as_chat(message_list(value))
    system = value.get("system")
    if system:
        messages.insert(0, {"role": "system", "content": read_parts(system, "\n").text})
    metadata = object_field(value, "metadata")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(value, "id"),
            tools=as_tools(value.get("tools")),
            session=text_field(value, "session", "session_id"),
            user=text_field(value, "user") or text_field(metadata, "user_id"),
            created=text_field(value, "created", "created_at", "timestamp"),
            model=text_field(value, "model"),
            outcome=reward_field(value, "reward"),
            task=text_field(value, "task", "task_id"),
            info={key: part for key, part in value.items() if key not in READ},
        ),
    )


READERS = (Reader(FORMAT, recognises, read),)
