"""Reads logs in OpenAI chat format: one JSON object a line, with `messages` and `tools`.

A line holds `messages` (roles, `tool_calls` with JSON text as arguments, tool replies with the id of
their call) and, as far as the log has them, `id`, `session`, `user`, `created`, `model`, `tools`,
`reward` and `environment` (`{"kind": …}` and what that environment needs to start the episode again).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracewheel.strict_json import parse_json
from tracewheel.traces.quarantine import Quarantined, UnfitLine
from tracewheel.types import Trace, content_hash

ROLES = ("system", "developer", "user", "assistant", "tool")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_openai(path: Path, name: str) -> Iterator[Trace | Quarantined]:
    """Stream a log file, one line in memory at a time. No line raises; blank lines are no records.

    Args:
        path: The file to read.
        name: How records call the file, so that they do not depend on where it lies.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            raw = raw.rstrip(b"\r\n")
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            if raw.strip():
                yield parse_line(raw, name, number)


def parse_line(raw: bytes, file: str, line: int) -> Trace | Quarantined:
    """The trace on a line, or the line in quarantine with the reason. Never raises."""
    try:
        return _trace(_parse(raw), file, line)
    except UnfitLine as unfit:
        return Quarantined(file, line, unfit.reason, unfit.detail, raw)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        value = parse_json(raw.decode())
    except UnicodeDecodeError as error:
        raise UnfitLine("not UTF-8", f"at byte {error.start}") from error
    except ValueError as error:
        raise UnfitLine("not JSON", str(error)) from error
    if not isinstance(value, dict):
        raise UnfitLine("not an object", f"a line is one JSON object, this is a {type(value).__name__}")
    return value


def _trace(record: dict[str, Any], file: str, line: int) -> Trace:
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UnfitLine("no messages", "'messages' is to be a list with at least one message")
    messages = _checked_messages(messages)
    tools = record.get("tools") or []
    if not isinstance(tools, list) or not all(_is_tool(tool) for tool in tools):
        raise UnfitLine("tools unreadable", "'tools' is to be a list of functions with a name")
    environment = record.get("environment")
    if environment is not None and not (isinstance(environment, dict) and isinstance(environment.get("kind"), str)):
        raise UnfitLine("environment unreadable", "'environment' is to be an object with a 'kind'")
    texts = {key: _optional_text(record, key) for key in ("id", "session", "user", "created", "model")}
    identity = {"messages": messages, "environment": environment, "session": texts["session"], "user": texts["user"]}
    return Trace(
        id=texts["id"] or f"trace-{content_hash(identity)}",
        messages=messages,
        tools=tools,
        environment=environment,
        session=texts["session"],
        user=texts["user"],
        created=texts["created"],
        model=texts["model"],
        outcome=_reward(record),
        source_file=file,
        source_line=line,
    )


def _checked_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """The messages with plain text as content, once their roles, calls and replies hold together."""
    checked: list[dict[str, Any]] = []
    open_calls: set[str] = set()
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            raise UnfitLine("message unreadable", f"message {position} is not an object")
        role = message.get("role")
        if role not in ROLES:
            raise UnfitLine("unknown role", f"message {position} has the role {role!r}")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str) or call_id not in open_calls:
                raise UnfitLine("tool reply without a call", f"message {position} replies to {call_id!r}")
            open_calls.remove(call_id)
        elif open_calls:
            raise UnfitLine("call without a reply", f"{sorted(open_calls)[0]!r} has none when message {position} follows")
        if role == "assistant":
            open_calls = _checked_calls(message.get("tool_calls"), position)
        checked.append({**message, "content": _text(message.get("content"), position)})
    if not any(message["role"] == "assistant" for message in checked):
        raise UnfitLine("no assistant turn", "the agent says nothing in this conversation")
    return checked


def _checked_calls(calls: Any, position: int) -> set[str]:
    """The ids of an assistant turn's calls."""
    if calls is None:
        return set()
    if not isinstance(calls, list):
        raise UnfitLine("tool calls unreadable", f"message {position}: 'tool_calls' is not a list")
    ids: set[str] = set()
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(call.get("id"), str):
            raise UnfitLine("tool calls unreadable", f"message {position}: a call needs an id and a function with a name")
        try:
            arguments = parse_json(function["arguments"]) if isinstance(function.get("arguments"), str) else None
        except ValueError as error:
            raise UnfitLine("arguments are not JSON", f"message {position}, call {call['id']!r}: {error}") from error
        if not isinstance(arguments, dict):
            raise UnfitLine("arguments are not JSON", f"message {position}, call {call['id']!r}: no JSON text of an object")
        if call["id"] in ids:
            raise UnfitLine("tool calls unreadable", f"message {position}: two calls have the id {call['id']!r}")
        ids.add(call["id"])
    return ids


def _text(content: Any, position: int) -> str | None:
    """The content as text: text parts are joined."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UnfitLine("content is not text", f"message {position}: content is a {type(content).__name__}")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise UnfitLine("content is not text", f"message {position}: a part of type {kind!r}")
        texts.append(part["text"])
    return "".join(texts)


def _is_tool(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _optional_text(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise UnfitLine("field unreadable", f"'{key}' is to be text")


def _reward(record: dict[str, Any]) -> float | None:
    value = record.get("reward")
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise UnfitLine("reward is not a number", f"'reward' is {value!r:.40}")
    return float(value)
