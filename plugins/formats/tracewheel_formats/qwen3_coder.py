"""Qwen3-Coder's tool calls: tags with arguments as plain text, one tag an argument.

    <tool_call>
    <function=list_files>
    <parameter=path>
    /inbox
    </parameter>
    </function>
    </tool_call>

The text of an argument is not escaped, so its type is the one of the tool's schema, and an argument cannot contain
`<parameter=`, nor `</parameter>` before another tag. The model itself leaves out the outer opening tag at times; such a call
is read.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tracewheel import ParsedCall, ParsedTurn, ToolFormat, parse_json
from tracewheel_formats.space import skip_space

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
_NAME = re.compile(r"([^<>\n]+)>")
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
_OF_TYPE: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_TYPE_NAMES = {type(None): "null", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class Qwen3CoderFormat(ToolFormat):
    """`<function=name>` tags with `<parameter=name>` tags inside."""

    REPLY_FRAMES = ("<tool_response>", "</tool_response>")
    CALL_FRAMES = (OPEN, CLOSE)
    END_TOKENS = ("<|im_end|>",)

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        thinking, text = self.split_thinking(text, FUNCTION)
        return _Reader(text, _properties(tools)).turn(thinking)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        return self.checked(calls, "\n".join(map(_written, calls)), list(map(_typing, calls)))


class _Reader:
    """Reads one turn. The ends of values are found once, so that reading takes linear time."""

    def __init__(self, text: str, schemas: Mapping[tuple[str, str], Any]) -> None:
        self._text, self._schemas = text, schemas
        self._value_ends = [found.start() for found in _VALUE_END.finditer(text)]

    def turn(self, thinking: str) -> ParsedTurn:
        text, pieces, calls, at = self._text, [], [], 0
        while (start := _first(text, at, OPEN, FUNCTION)) >= 0:
            pieces.append(text[at:start])
            call, at = self._block(start)
            calls.append(call)
        return ParsedTurn("".join([*pieces, text[at:]]).strip(), calls, thinking)

    def _block(self, start: int) -> tuple[ParsedCall, int]:
        wrapped = self._text.startswith(OPEN, start)
        inside = skip_space(self._text, start + len(OPEN)) if wrapped else start
        try:
            call, at = self._function(inside)
            end = skip_space(self._text, at)
            if self._text.startswith(CLOSE, end):
                return call, end + len(CLOSE)
            return (call if not wrapped else ParsedCall(malformed=f"{OPEN} without {CLOSE}")), at
        except _MalformedError as error:
            return ParsedCall(malformed=str(error)), self._after(start + 1)

    def _function(self, at: int) -> tuple[ParsedCall, int]:
        name, at = self._tag(at, FUNCTION)
        arguments: dict[str, Any] = {}
        while True:
            at = skip_space(self._text, at)
            if self._text.startswith(FUNCTION_END, at):
                return ParsedCall(name, arguments), at + len(FUNCTION_END)
            key, at = self._tag(at, PARAMETER)
            if key in arguments:
                raise _MalformedError("a parameter twice")
            position = bisect.bisect_left(self._value_ends, at)
            if position == len(self._value_ends):
                raise _MalformedError(f"{PARAMETER} without {PARAMETER_END}")
            end = self._value_ends[position]
            written = self._text[at:end].removeprefix("\n").removesuffix("\n")
            if PARAMETER in written:  # of the next argument: this one was not closed
                raise _MalformedError(f"{PARAMETER} without {PARAMETER_END}")
            arguments[key] = _typed(written, self._schemas.get((name, key)))
            at = end + len(PARAMETER_END)

    def _tag(self, at: int, tag: str) -> tuple[str, int]:
        found = _NAME.match(self._text, at + len(tag)) if self._text.startswith(tag, at) else None
        if found is None:
            raise _MalformedError(f"no {tag}name>")
        return found.group(1), found.end()

    def _after(self, at: int) -> int:
        """Past the closing tag of a block that cannot be read, or at the next block."""
        reopened = self._text.find(OPEN, at)
        limit = reopened if reopened >= 0 else len(self._text)
        close = self._text.find(CLOSE, at, limit)
        return close + len(CLOSE) if close >= 0 else limit


class _MalformedError(Exception):
    """Why a block is malformed."""


def _first(text: str, at: int, *tags: str) -> int:
    return min((found for tag in tags if (found := text.find(tag, at)) >= 0), default=-1)


def _properties(tools: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """The schema of each argument, by tool and argument."""
    found: dict[tuple[str, str], Any] = {}
    for tool in tools:
        function = tool.get("function", tool)
        properties = (function.get("parameters") or {}).get("properties") or {}
        found |= {(function.get("name"), key): schema for key, schema in properties.items()}
    return found


def _typed(text: str, schema: Any) -> Any:
    """The value that a text stands for under a schema; the text itself where it is none of the schema's types."""
    types = _types(schema)
    if "null" in types and text.strip() in ("null", "None"):
        return None
    for name in types:
        if name == "string":
            break
        if name == "boolean" and text.strip().lower() in ("true", "false"):
            return text.strip().lower() == "true"
        try:
            value = parse_json(text)
        except ValueError:
            continue
        if isinstance(value, _OF_TYPE.get(name, ())) and (name == "boolean" or not isinstance(value, bool)):
            return value
    return text


def _types(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    declared = schema.get("type")
    types = [declared] if isinstance(declared, str) else [name for name in declared or [] if isinstance(name, str)]
    for choice in [*(schema.get("anyOf") or []), *(schema.get("oneOf") or [])]:
        types += _types(choice)
    return types


def _typing(call: ParsedCall) -> dict[str, Any]:
    """A tool that takes just the types of a call's arguments."""
    properties = {key: {"type": _TYPE_NAMES.get(type(value), "string")} for key, value in call.arguments.items()}
    return {"name": call.name, "parameters": {"properties": properties}}


def _written(call: ParsedCall) -> str:
    parameters = "".join(
        f"{PARAMETER}{key}>\n{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n{PARAMETER_END}\n"
        for key, value in call.arguments.items()
    )
    return f"{OPEN}\n{FUNCTION}{call.name}>\n{parameters}{FUNCTION_END}\n{CLOSE}"
