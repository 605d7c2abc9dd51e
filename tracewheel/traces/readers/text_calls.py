"""Calls that a model writes into its text: Hermes' `<tool_call>` blocks, and ReAct's `Action:` and `Action Input:`."""

from __future__ import annotations

import ast
import re
from typing import Any

from tracewheel.core.strict_json import check_json, parse_json
from tracewheel.traces.readers.content import arguments_text, as_text, identity_of

CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)
NAME = re.compile(r"""["']name["']\s*:\s*["']([^"']+)["']""")
ACTION = re.compile(r"\bAction:[ \t]*(\S[^\n]*?)\s*\nAction Input:\s*(.*?)\s*\Z", re.DOTALL)
APIS = re.compile(r"access to the following (?:APIs|tools): *(\[.*\])", re.DOTALL)


def hermes_turn(text: str) -> dict[str, Any] | None:
    """The assistant's turn of a text with `<tool_call>` blocks; None for a text without a readable one.

    A block that is no JSON, but names a tool, is a call with the block as its broken arguments.
    """
    calls = []
    for block in CALL.findall(text):
        value = parsed_literal(block)
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            arguments = next((value[key] for key in ("arguments", "parameters") if value.get(key) is not None), None)
            identity = identity_of(next((value[key] for key in ("id", "tool_call_id") if value.get(key)), None))
            calls.append(_call(identity, value["name"], arguments_text(arguments)))
        elif name := NAME.search(block):
            calls.append(_call(None, name[1], block))
        else:
            return None
    if not calls:
        return None
    said = CALL.sub("", text).strip()
    return {"role": "assistant", "content": said or None, "tool_calls": calls}


def hermes_replies(text: str) -> list[dict[str, Any]]:
    """The replies in the `<tool_response>` blocks of a text, or the text as one reply."""
    replies = []
    for block in RESPONSE.findall(text):
        value = parsed_literal(block)
        reply: dict[str, Any] = {"role": "tool", "content": block}
        if isinstance(value, dict) and "content" in value and value.keys() <= {"name", "content", "id", "tool_call_id"}:
            reply["content"] = as_text(value["content"])
            if identity := identity_of(value.get("tool_call_id") or value.get("id")):
                reply["tool_call_id"] = identity
            if isinstance(value.get("name"), str):
                reply["name"] = value["name"]
        replies.append(reply)
    return replies or [{"role": "tool", "content": text}]


def react_turn(text: str) -> dict[str, Any] | None:
    """The assistant's turn of a text that ends with an action and its input; None for any other text."""
    match = ACTION.search(text)
    if match is None:
        return None
    value = parsed_literal(match[2])
    arguments = arguments_text(value if isinstance(value, dict) else match[2])
    said = text[: match.start()].strip()
    return {"role": "assistant", "content": said or None, "tool_calls": [_call(None, match[1].strip(), arguments)]}


def tools_in(text: str) -> list[Any]:
    """The tools in a system prompt: in `<tools>`, as a list or one a line, or after ToolBench's words."""
    for found in (TOOLS.search(text), APIS.search(text)):
        if found is None:
            continue
        value = parsed_literal(found[1])
        if isinstance(value, dict):
            return [value]
        listed = value if isinstance(value, list) else [parsed_literal(line) for line in found[1].splitlines() if line.strip()]
        if listed and all(isinstance(tool, dict) for tool in listed):
            return listed
    return []


def parsed_literal(text: str) -> Any:
    """The value of a text that is JSON, or as Python writes it; None for any other text."""
    try:
        return parse_json(text)
    except ValueError:
        pass
    if len(text) > 100_000 or text[:1] not in "{[":
        return None
    try:
        value = ast.literal_eval(text)
        check_json(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value


def _call(identity: str | None, name: str, arguments: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
