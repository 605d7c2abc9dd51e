"""Tool schemas: as logged, in OpenAI's form, or inferred from the calls; and the cache of those that most lines repeat.

A line with the tools' text of an earlier line is parsed with a mark in its place. The rest of the line keeps its meaning:
where the tools' text is a key and its value, so is the mark; anywhere else both are invalid JSON.
"""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from tracewheel.traces.json_cutter import CLOSING, OPENING, TOKEN
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.dialects import parsed_json
from tracewheel.traces.readers.messages import is_strict, read_arguments

SCHEMA_KEYS = (
    "parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema", "json_schema", "schema",
)  # fmt: skip
DECLARED = ("functionDeclarations", "function_declarations")  # of a tool of Gemini's, which holds functions
DEEPEST = 32
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}


def check_tools(tools: Any) -> list[dict[str, Any]]:
    """Check that tools are in OpenAI's form, functions with a name; return them unchanged.

    Raises:
        InvalidRecord: they are not.
    """
    if not isinstance(tools, list) or not all(_is_tool(tool) for tool in tools):
        raise InvalidRecord("tools unreadable", "'tools' is to be a list of functions with a name")
    return tools


def given_tools(tools: Any) -> list[dict[str, Any]]:
    """A record's tools in OpenAI's form, from that form, a provider's, or the JSON text of either.

    Raises:
        InvalidRecord: one of them is no tool.
    """
    tools = parsed_json(tools)
    shaped = as_tools(tools)
    return shaped if shaped and len(shaped) == len(tools) else check_tools(tools or [])


def as_tools(tools: Any) -> list[dict[str, Any]]:
    """Convert the tools of providers and tracers to OpenAI's form. Only tools with a name stay; of equal names, the first.

    Args:
        tools: A list of tools or an object of names to tools. Each tool is an object or its JSON text.
    """
    tools = parsed_json(tools)
    if isinstance(tools, dict):
        tools = [{"name": name, **tool} for name, tool in tools.items() if isinstance(tool, dict)]
    found: dict[str, dict[str, Any]] = {}
    for tool in tools if isinstance(tools, list) else []:
        tool = parsed_json(tool)
        holds = [tool[key] for key in DECLARED if isinstance(tool.get(key), list)] if isinstance(tool, dict) else []
        for one in lower_types(holds[0]) if holds else [tool]:
            shaped = _as_tool(one) if isinstance(one, dict) else None
            if shaped is not None:
                found.setdefault(shaped["function"]["name"], shaped)
    return list(found.values())


def lower_types(schema: Any, depth: int = 0) -> Any:
    """A schema of Gemini's with JSON Schema's names of types: that API writes them in capital letters."""
    if isinstance(schema, list):
        return [lower_types(part, depth + 1) for part in schema]
    if not isinstance(schema, dict) or depth > DEEPEST:
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) and value.isupper() else lower_types(value, depth + 1)
        for key, value in schema.items()
        if value is not None
    }


def _as_tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    if _is_tool(tool):
        return tool
    function = tool.get("function")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        schema = parsed_json(function.get("parameters"))
        return {**tool, "function": {**function, "parameters": schema if isinstance(schema, dict) else {}}}
    name = tool.get("name")
    if not isinstance(name, str):
        return None
    function = {"name": name}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    parameters = parsed_json(next((tool[key] for key in SCHEMA_KEYS if tool.get(key) is not None), {}))
    function["parameters"] = parameters if isinstance(parameters, dict) else {}
    return {"type": "function", "function": function}


def infer_tools(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Infer the schemas of called tools from their arguments and types; arguments of every sound call are required."""
    calls: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            function = call["function"]
            arguments = read_arguments(function["arguments"])
            made = calls.setdefault(function["name"], [])
            if arguments is not None:
                made.append(arguments)
    return [_inferred(name, arguments) for name, arguments in calls.items()]


def _inferred(name: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    types: dict[str, list[str]] = {}
    for arguments in calls:
        for key, value in arguments.items():
            seen = types.setdefault(key, [])
            if (kind := TYPES[type(value)]) not in seen:
                seen.append(kind)
    properties = {key: {"type": kinds[0] if len(kinds) == 1 else kinds} for key, kinds in types.items()}
    required = [key for key in types if all(key in arguments for arguments in calls)]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _is_tool(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return False
    return isinstance(function.get("parameters"), dict | None)


Tools = list[dict[str, Any]]

KEY = b'"tools"'
MARK = uuid.uuid4().hex
MARKED = f'"tools":"{MARK}"'.encode()
WRITTEN_KEPT, PARSED_KEPT = 8, 256


class ToolCache:
    """The tools of recent lines, by their text."""

    def __init__(self) -> None:
        self._written: list[tuple[bytes, int, Tools]] = []
        self._parsed: dict[bytes, Tools] = {}

    def parse(self, raw: bytes) -> Any:
        """Parse a line. Its tools are the same list object as an earlier line's if their texts are equal.

        Raises:
            ValueError: the line is not JSON.
        """
        place = raw.find(KEY)
        for written, length, tools in self._written:
            if raw.startswith(written, place):
                record = orjson.loads(raw[:place] + MARKED + raw[place + length :])
                if record.__class__ is dict and record.get("tools") == MARK:
                    record["tools"] = tools
                    return record
                break
        return orjson.loads(raw)

    def checked(self, tools: Any, raw: bytes) -> Tools | None:
        """A line's tools if they are certain to be valid; None if there are none, or they need a full check."""
        for _, _, known in self._written:
            if known is tools:
                return known
        if not tools:
            return None
        text = orjson.dumps(tools)
        sound = self._parsed.get(text)
        if sound is None:
            try:
                sound = check_tools(tools)
            except InvalidRecord:
                return None
            if not is_strict(tools):
                return None
            if len(self._parsed) >= PARSED_KEPT:
                self._parsed.clear()
            self._parsed[text] = sound
            self._learn(raw, sound)
        return sound

    def _learn(self, raw: bytes, tools: Tools) -> None:
        """Cache the text of a line's tools."""
        place = raw.find(KEY)
        end = _end_of_value(raw, place + len(KEY))
        try:
            same = orjson.loads(b"{" + raw[place:end] + b"}") == {"tools": tools}
        except ValueError:
            return
        if same:
            self._written = [(raw[place:end], end - place, tools), *self._written][:WRITTEN_KEPT]


def _end_of_value(raw: bytes, start: int) -> int:
    """The end of the first list or object from `start` on, or of the bytes."""
    depth = 0
    for token in TOKEN.finditer(raw, start):
        byte = raw[token.start()]
        if byte in OPENING:
            depth += 1
        elif byte in CLOSING:
            depth -= 1
            if depth <= 0:
                return token.end()
    return len(raw)
