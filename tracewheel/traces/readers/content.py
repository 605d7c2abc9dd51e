"""The content of one message, part by part: text, reasoning, calls and results of calls.

Parts are those of OpenAI, Anthropic, OpenTelemetry, Gemini (`functionCall`), Bedrock (`toolUse`) and the AI SDK, whose tool
parts hold a call and its result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.strict_json import parse_json
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.media import placeholder

TEXTS = {"text", "input_text", "output_text", "summary_text"}
THOUGHTS = {"thinking", "reasoning", "redacted_thinking", "redacted-reasoning"}
CALLS = {"tool_use", "tool-call", "tool_call", "toolCall", "function_call", "server_tool_use", "mcp_tool_use"}
RESULTS = {"tool_result", "tool-result", "tool_call_response", "tool_response"}
KIRO = {"toolUse": "tool_use", "toolResult": "tool_result"}  # parts of `kind` and `data`
GOOSE = {"toolRequest": "toolCall", "toolResponse": "toolResult"}  # and where such a part holds its call or result
# Parts of a server's results: what Anthropic's search found, as text beside what only its API can read.
SERVED = {"web_search_result": ("title", "url"), "tool_reference": ("tool_name",), "search_result": ("title", "source")}
OPAQUE = {"encrypted_content", "encrypted_index", "encrypted_stdout", "type"}
# What a model neither reads nor writes: boundaries, marks for caches, and what the AI SDK shows to its users only.
SHOWN_ONLY = {"step-start", "source", "source-url", "source-document", "cachePoint"}
CALL_KEYS = ("functionCall", "function_call", "toolUse", "tool_use")
RESULT_KEYS = ("functionResponse", "function_response", "toolResult", "tool_result")
ID_KEYS = ("tool_use_id", "toolUseId", "toolUseID", "toolCallId", "tool_call_id", "call_id", "id")
# Between parts of text of one message of the user's or a tool's, as vLLM joins them. A model's parts may be pieces of one text.
APART = "\n"
BLOCKS_APART = "\n\n"  # of a model, what it said before and after something else, such as a call


@dataclass
class Content:
    """A message's parts by kind. `text` is None without any text; calls and results are as logged."""

    text: str | None = None
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)

    def add_text(self, text: str, apart: str) -> None:
        """Add a part of text; `apart` stands between it and the text before, unless white space does."""
        before = self.text or ""
        if before and text and not before[-1].isspace() and not text[0].isspace():
            before += apart
        self.text = before + text


def read_parts(content: Any, apart: str = "") -> Content:
    """Sort a message's content, which is a text, a part, or a list of these.

    Args:
        content: As logged.
        apart: What stands between two parts of text, one right after the other.

    Raises:
        InvalidRecord: a part has an unknown kind.
    """
    found = Content()
    between = apart
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        before = found.text
        if isinstance(part, str):
            found.add_text(part, between)
        elif isinstance(part, dict):
            _sort(part, found, between)
        else:
            raise InvalidRecord("content is not text", f"a part of a message is a {type(part).__name__}")
        between = apart if found.text != before else BLOCKS_APART
    return found


def read_steps(content: Any) -> list[Content]:
    """Sort an agent's message that may hold several turns, as the AI SDK's do: a turn ends with the results of its calls.

    Raises:
        InvalidRecord: a part has an unknown kind.
    """
    steps, between = [Content()], ""
    for part in content if isinstance(content, list) else [content]:
        one = read_parts(part)
        ends = isinstance(part, dict) and part.get("type") == "step-start"
        if steps[-1].results and (ends or one.text or one.reasoning or (one.calls and not one.results)):
            steps.append(Content())
        step = steps[-1]
        if one.text is not None:
            step.add_text(one.text, between)
        between = "" if one.text else BLOCKS_APART
        step.reasoning += one.reasoning
        step.calls += one.calls
        step.results += one.results
    return steps


def _sort(part: dict[str, Any], found: Content, apart: str) -> None:
    part = _plain(part)
    kind = part.get("type")
    if not isinstance(kind, str | None):
        raise InvalidRecord("content is not text", f"a part of type {kind!r:.40}")
    if kind in TEXTS or (kind is None and isinstance(part.get("text"), str)):
        text = as_text(_held(part, ("text", "content", "value")))
        if part.get("thought") is True:
            found.reasoning += text
        else:
            found.add_text(text, apart)
    elif kind == "refusal":
        found.add_text(as_text(part.get("refusal")), apart)
    elif kind in THOUGHTS or (kind is not None and kind.endswith(".TextReasoningContent")):
        part = part["content"] if isinstance(part.get("content"), dict) else part
        found.reasoning += as_text(_held(part, ("thinking", "text", "content", "reasoning", "value")))
    elif kind in CALLS:
        found.calls.append(_call_in_text(part))
    elif kind in RESULTS or (kind is not None and kind.endswith("_tool_result")):
        found.results.append(_result(part))
    elif kind == "tool-invocation" and isinstance(part.get("toolInvocation"), dict):
        _sort_invocation(part["toolInvocation"], None, found)
    elif kind == "dynamic-tool" or (kind is not None and kind.startswith("tool-") and "toolCallId" in part):
        _sort_invocation(part, None if kind == "dynamic-tool" else kind.removeprefix("tool-"), found)
    elif (seen := placeholder(part)) is not None:
        found.add_text(seen, apart or APART)
    elif kind in SERVED:
        found.add_text(_served(part, SERVED[kind]), apart or APART)
    elif kind is None:
        _sort_unnamed(part, found)
    elif kind not in SHOWN_ONLY and not kind.startswith("data-"):
        raise InvalidRecord("content is not text", f"a part of type {kind!r:.40}")


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A part of Kiro's or Goose's as others write it; any other unchanged."""
    if part.keys() == {"kind", "data"}:
        data = part["data"]
        return {"type": KIRO.get(part["kind"], part["kind"]), **(data if isinstance(data, dict) else {"text": data})}
    if (key := GOOSE.get(str(part.get("type")))) and isinstance(part.get(key), dict):
        held = part[key].get("value", part[key].get("error"))
        named = {"type": "tool_use", **held} if key == "toolCall" and isinstance(held, dict) else {"type": "tool_result"}
        return {
            **named,
            "id": part.get("id"),
            "content": held["content"] if isinstance(held, dict) and "content" in held else held,
        }
    return part


def _served(part: dict[str, Any], names: tuple[str, ...]) -> str:
    """A part of a server's result as text: its named fields, and its own content."""
    told = [as_text(part[name]) for name in names if part.get(name)]
    content = read_parts(part.get("content")).text if isinstance(part.get("content"), list) else None
    return "\n".join([*told, *([content] if content else [])])


def _held(part: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields of a part that has a value."""
    return next((part[name] for name in names if part.get(name)), None)


def _call_in_text(part: dict[str, Any]) -> dict[str, Any]:
    """A call, or the one that a part holds as JSON text under `value`."""
    text = part.get("value")
    if isinstance(text, str) and "name" not in part and "function" not in part:
        try:
            call = parse_json(text)
        except ValueError:
            return part
        return call if isinstance(call, dict) else part
    return part


def _sort_unnamed(part: dict[str, Any], found: Content) -> None:
    """A part whose only key says what it is, as Gemini and Bedrock write them."""
    call = next((part[key] for key in CALL_KEYS if isinstance(part.get(key), dict)), None)
    result = next((part[key] for key in RESULT_KEYS if isinstance(part.get(key), dict)), None)
    thought = part.get("reasoningContent")
    if call is not None:
        found.calls.append({**call, "id": next((call[key] for key in ID_KEYS if call.get(key)), None)})
    elif result is not None:
        found.results.append(_result(result))
    elif isinstance(thought, dict):
        inner = thought.get("reasoningText")
        found.reasoning += as_text(inner.get("text") if isinstance(inner, dict) else inner)
    elif any(part.get(key) for key in part.keys() - SHOWN_ONLY - {"thoughtSignature", "thought_signature"}):
        keys = ", ".join(repr(key) for key in sorted(part) if part[key])
        raise InvalidRecord("content is not text", f"a part with {keys:.80}")


def _sort_invocation(tool: dict[str, Any], name: str | None, found: Content) -> None:
    """A call of the AI SDK's UI messages, with its result once there is one."""
    identity, name = tool.get("toolCallId"), name or tool.get("toolName")
    given = next((tool[key] for key in ("args", "input", "rawInput") if tool.get(key) is not None), None)
    found.calls.append({"id": identity, "name": name, "arguments": given})
    result = next((tool[key] for key in ("result", "output", "errorText") if tool.get(key) is not None), None)
    if result is not None or str(tool.get("state", "")) in ("result", "output-available", "output-error"):
        found.results.append({"id": identity_of(identity), "name": name, "content": result})


def _result(part: dict[str, Any]) -> dict[str, Any]:
    identity = next((part[key] for key in ID_KEYS if part.get(key)), None)
    output = next((part[key] for key in ("content", "result", "response", "output") if part.get(key) is not None), None)
    named = "response" if isinstance(part.get("response"), dict) else "run"  # Gemini's and Amp's
    held = part.get(named)
    if isinstance(held, dict) and (output is None or (output is held and set(held) == {"output"})):
        output = next((held[key] for key in ("output", "result", "error") if held.get(key) is not None), None)
    if isinstance(output, dict) and set(output) == {"type", "value"}:
        output = output["value"]
    if isinstance(output, list) and output and all(isinstance(inner, dict) for inner in output):
        output = _joined(output)
    elif isinstance(output, dict) and str(part.get("type")).endswith("_tool_result"):
        output = {key: value for key, value in output.items() if key not in OPAQUE}
    return {"id": identity_of(identity), "name": part.get("name") or part.get("toolName"), "content": output}


def _joined(parts: list[dict[str, Any]]) -> Any:
    """A result's text parts and, as Bedrock writes them, its JSON; any other list unchanged."""
    parts = [part["data"] if part.keys() == {"kind", "data"} and part["kind"] == "json" else _plain(part) for part in parts]
    if all("type" in part for part in parts):
        return read_parts(parts, APART).text
    if all(part.keys() in ({"text"}, {"json"}) for part in parts):
        return "".join(as_text(value) for part in parts for value in part.values())
    return parts


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


def tool_call(identity: str | None, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in OpenAI's form; arguments are an object or JSON text."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments_text(arguments)}}


def arguments_text(arguments: Any) -> str:
    """A call's arguments as JSON text; `{}` without arguments."""
    return as_text(arguments) or "{}"
