"""Reads the rows of xLAM's function-calling-60k: `{"query", "tools", "answers"}`, the last two as JSON text.

A row is a question and the calls that answer it; there are no replies. The tools' parameters are `{name: {"type": "str",
"description", "default"}}`; they become JSON schemas, in which a parameter without a default is required.
"""

from __future__ import annotations

from typing import Any

from tracewheel import InvalidRecord, Place, RawTrace, Reader, Trace, as_tools, build_trace, parsed_json, tie_calls, tool_call

FORMAT = "xlam"
READ = {"query", "tools", "answers"}
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
TYPES |= {"tuple": "array", "set": "array", "any": "string", "number": "number"}


def recognises(value: Any) -> bool:
    """Whether this is one row."""
    if not isinstance(value, dict) or not value.keys() >= READ or not isinstance(value["query"], str):
        return False
    return isinstance(parsed_json(value["answers"]), list) and isinstance(parsed_json(value["tools"]), list)


def read(value: Any, place: Place) -> Trace:
    """The trace of one row.

    Raises:
        InvalidRecord: it cannot be read.
    """
    answers = parsed_json(value["answers"])
    if not answers:
        raise InvalidRecord("no assistant turn", "'answers' has no call")
    calls = []
    for number, answer in enumerate(answers):
        if not isinstance(answer, dict) or not isinstance(answer.get("name"), str):
            raise InvalidRecord("tool calls unreadable", f"answer {number} has no name of a tool")
        calls.append(tool_call(None, answer["name"], answer.get("arguments")))
    messages = [
        {"role": "user", "content": value["query"]},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    tools = as_tools(value["tools"])
    for tool in tools:
        tool["function"]["parameters"] = schema(tool["function"].get("parameters"))
    info = {key: part for key, part in value.items() if key not in READ}
    return build_trace(FORMAT, place, RawTrace(tie_calls(messages), tools=tools, info=info))


def schema(parameters: Any) -> dict[str, Any]:
    """A JSON schema of parameters that are listed by name; one that is a schema already stays as it is."""
    if not isinstance(parameters, dict):
        return {"type": "object", "properties": {}}
    if isinstance(parameters.get("type"), str) or "properties" in parameters:
        return parameters
    properties, required = {}, []
    for name, details in parameters.items():
        details = dict(details) if isinstance(details, dict) else {}
        written = str(details.get("type", "str"))
        kind = written.split(",")[0].split("[")[0].strip().lower()
        properties[name] = details | {"type": TYPES.get(kind, kind if kind in TYPES.values() else "string")}
        if "default" not in details and "optional" not in written.lower():
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


READERS = (Reader(FORMAT, recognises, read),)
