"""The content of one message, part by part: text, reasoning, calls and results of calls."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tracewheel.traces.quarantine import InvalidRecord

TEXTS = {"text", "input_text", "output_text", "summary_text"}
THOUGHTS = {"thinking", "reasoning", "redacted_thinking", "redacted-reasoning"}
CALLS = {"tool_use", "tool-call", "tool_call", "function_call"}
RESULTS = {"tool_result", "tool-result", "tool_call_response", "tool_response"}


@dataclass
class Content:
    """A message's parts by kind. `text` is None without any text; calls and results are as logged."""

    text: str | None = None
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


def read_parts(content: Any) -> Content:
    """Sort a message's content, which is a text, a part, or a list of these.

    Raises:
        InvalidRecord: a part has an unknown kind.
    """
    found = Content()
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        if isinstance(part, str):
            found.text = (found.text or "") + part
            continue
        if not isinstance(part, dict):
            raise InvalidRecord("content is not text", f"a part of a message is a {type(part).__name__}")
        kind = part.get("type")
        if not isinstance(kind, str | None):
            raise InvalidRecord("content is not text", f"a part of type {kind!r:.40}")
        if kind in TEXTS or (kind is None and isinstance(part.get("text"), str)):
            found.text = (found.text or "") + as_text(part.get("text", part.get("content")))
        elif kind == "refusal":
            found.text = (found.text or "") + as_text(part.get("refusal"))
        elif kind in THOUGHTS:
            found.reasoning += as_text(next((part[key] for key in ("thinking", "text", "content") if part.get(key)), ""))
        elif kind in CALLS:
            found.calls.append(part)
        elif kind in RESULTS:
            found.results.append(_result(part))
        else:
            raise InvalidRecord("content is not text", f"a part of type {kind!r:.40}")
    return found


def _result(part: dict[str, Any]) -> dict[str, Any]:
    identity = next((part[key] for key in ("tool_use_id", "toolCallId", "tool_call_id", "id") if part.get(key)), None)
    output = next((part[key] for key in ("content", "result", "response", "output") if part.get(key) is not None), None)
    if isinstance(output, dict) and set(output) == {"type", "value"}:
        output = output["value"]
    if isinstance(output, list) and output and all(isinstance(inner, dict) and "type" in inner for inner in output):
        output = read_parts(output).text
    return {"id": identity_of(identity), "name": part.get("name") or part.get("toolName"), "content": output}


def identity_of(value: Any) -> str | None:
    """A call's id as text; None if it is missing or has another type."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def as_text(value: Any) -> str:
    """Text unchanged, None as an empty text, anything else as JSON text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def arguments_text(arguments: Any) -> str:
    """A call's arguments as JSON text; `{}` without arguments."""
    return as_text(arguments) or "{}"
