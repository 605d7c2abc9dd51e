"""Calls as a list in Python, of Llama 3.2 and Llama 4 (which may put it between `<|python_start|>` and `<|python_end|>`):

    [list_files(path='/inbox'), finish()]

A turn that begins with a bracket, a name and a parenthesis is calls; other turns are free text. Arguments are literals and
have names; `true`, `false` and `null` stand for Python's own.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from typing import Any

from tracewheel.chat.formats.base import ParsedCall, ParsedTurn, ToolFormat
from tracewheel.core.strict_json import check_json, parse_python

START, STOP = "<|python_start|>", "<|python_end|>"
_CALLS = re.compile(r"\[\s*[^\W\d][\w.]*\(")
_CONSTANTS = {"true": True, "false": False, "null": None}


class PythonicFormat(ToolFormat):
    """A Python list of calls with literal arguments."""

    REPLY_FRAMES = ("<|header_start|>ipython<|header_end|>", "<|start_header_id|>ipython<|end_header_id|>")
    CALL_FRAMES = (START, STOP)
    END_TOKENS = ("<|eot|>", "<|eom|>", "<|eot_id|>", "<|eom_id|>")

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        body = text.strip()
        tagged = body.startswith(START)
        if tagged:
            body = body.removeprefix(START).removesuffix(STOP).strip()
        if not tagged and not _CALLS.match(body):
            return ParsedTurn(body, [])
        return ParsedTurn("", _read_list(body))

    def render(self, calls: Sequence[ParsedCall]) -> str:
        written = ", ".join(
            f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})" for call in calls
        )
        return self.checked(calls, f"[{written}]")


def _read_list(body: str) -> list[ParsedCall]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes such as \d
            expression = parse_python(body, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return [ParsedCall(malformed="not Python")]
    if not isinstance(expression, ast.List) or not expression.elts:
        return [ParsedCall(malformed="no list of calls")]
    return [_read_call(node) for node in expression.elts]


def _read_call(node: ast.expr) -> ParsedCall:
    if not isinstance(node, ast.Call):
        return ParsedCall(malformed="not a call")
    name = _dotted(node.func)
    if name is None:
        return ParsedCall(malformed="no name")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return ParsedCall(malformed="an argument without a name")
    try:
        arguments = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
        check_json(arguments)
    except ValueError as error:
        return ParsedCall(malformed=str(error))
    return ParsedCall(name, arguments)


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else None


def _literal(node: ast.expr) -> Any:
    """The JSON value of a literal.

    Raises:
        ValueError: it is something else.
    """
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if not isinstance(value, bool):
            return -value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.List(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return dict(zip(map(_key, keys), map(_literal, values), strict=True))
    raise ValueError("an argument is not a literal of JSON's kinds")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("a key is not a string")
