"""JSON that can be written again, as JSON and as Parquet."""

from __future__ import annotations

import ast
import json
import math
import os
import threading
from typing import Any

import orjson

DEEPEST = 64
LARGEST_INTEGER = 2**63
_DECODER = json.JSONDecoder()
_NUMBERS, _CONTAINERS = (int, float), (dict, list)
_FIRST = tuple('{["-0123456789tfn')


def parse_json(text: str) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: it is not JSON, or cannot be written again: a number is not finite or needs more than 64 bits, a text
            has a lone surrogate, or values are nested deeper than `DEEPEST`.
    """
    try:
        value = orjson.loads(text)
        if _is_plain(value):
            return value
    except ValueError:
        pass  # the other parser says what is wrong, and reads more
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST}") from None
    check_json(value)
    return value


def _is_plain(value: Any) -> bool:
    """Whether a value is as it was written: orjson reads no other texts, but makes a fraction of a large integer."""
    level = [value]
    for _ in range(DEEPEST):
        if any(type(node) in _NUMBERS and abs(node) >= LARGEST_INTEGER for node in level):
            return False
        parts = [node.values() if type(node) is dict else node for node in level if type(node) in _CONTAINERS]
        if not parts:
            return True
        level = [node for part in parts for node in part if type(node) is not str]
    return not level


def read_json_at(text: str, at: int = 0) -> tuple[Any, int]:
    """Read the JSON value that begins at position `at`, and give the position after it; any text may follow.

    Raises:
        ValueError: as `parse_json`.
    """
    if not text.startswith(_FIRST, at):  # an error of the decoder counts all lines before it
        raise ValueError("not JSON")
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST}") from None
    check_json(value)
    return value, end


def check_json(value: Any) -> None:
    """Check a JSON value from another parser by the same rules.

    Raises:
        ValueError: it cannot be written again.
    """
    pending = [(value, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST}")
        match node:
            case dict():
                pending += [(part, depth + 1) for pair in node.items() for part in pair]
            case list():
                pending += [(part, depth + 1) for part in node]
            case str():
                try:
                    node.encode()
                except UnicodeEncodeError:
                    raise ValueError("half of a surrogate pair") from None
            case float() if not math.isfinite(node):
                raise ValueError("a number that is not finite")
            case int() if abs(node) >= LARGEST_INTEGER:
                raise ValueError("a number of more than 64 bits")


def fresh_copy(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: fresh_copy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [fresh_copy(part) for part in value]
    return value


# CPython 3.11 counts how deep a tree is in one place for all threads, and raises SystemError where two make trees at once.
_one_at_a_time = threading.Lock()


def _begin_anew() -> None:
    """In a forked process; a thread that is not here may hold the lock."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)


def parse_python(source: str | bytes, mode: str = "exec") -> Any:
    """The syntax tree of a source, as `ast.parse` makes it.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse` does.
    """
    with _one_at_a_time:
        return ast.parse(source, mode=mode)
