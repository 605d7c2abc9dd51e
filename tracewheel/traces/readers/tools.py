"""Tool schemas: as logged, in OpenAI's form, or inferred from the calls."""

from __future__ import annotations

from typing import Any

from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.dialects import parsed
from tracewheel.traces.readers.messages import read_arguments

SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "json_schema", "schema")
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
    tools = parsed(tools)
    shaped = as_tools(tools)
    return shaped if shaped and len(shaped) == len(tools) else check_tools(tools or [])


def as_tools(tools: Any) -> list[dict[str, Any]]:
    """Convert the tools of providers and tracers to OpenAI's form. Only tools with a name stay; of equal names, the first.

    Args:
        tools: A list of tools or an object of names to tools. Each tool is an object or its JSON text.
    """
    tools = parsed(tools)
    if isinstance(tools, dict):
        tools = [{"name": name, **tool} for name, tool in tools.items() if isinstance(tool, dict)]
    found: dict[str, dict[str, Any]] = {}
    for tool in tools if isinstance(tools, list) else []:
        tool = parsed(tool)
        shaped = _as_tool(tool) if isinstance(tool, dict) else None
        if shaped is not None:
            found.setdefault(shaped["function"]["name"], shaped)
    return list(found.values())


def _as_tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    if _is_tool(tool):
        return tool
    name = tool.get("name")
    if not isinstance(name, str):
        return None
    function: dict[str, Any] = {"name": name}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    parameters = parsed(next((tool[key] for key in SCHEMA_KEYS if tool.get(key) is not None), {}))
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
    return isinstance(function, dict) and isinstance(function.get("name"), str)
