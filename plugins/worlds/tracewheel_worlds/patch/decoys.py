"""Tests that are wrong on purpose: one constant of an assertion is another, so that right code fails them.

Where a pass is what the tests' own process says, code under test can say it too. It cannot say which of two tests is the wrong
one, `== 7` or `== 8`, without knowing what is right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tracewheel import parse_python


class Decoy(NamedTuple):
    """A change of a test file that makes one test wrong.

    Attributes:
        test: The test, as `Class.method`.
        start: Where the constant stands, in bytes of the file.
        end: Where it ends.
        text: What stands there instead.
    """

    test: str
    start: int
    end: int
    text: str


def decoys_of(source: str) -> list[Decoy]:
    r"""The changes that may make a test wrong, several for some tests. Whether they do is for a run to show.

    Raises:
        ValueError: the source is no Python.

    >>> found = decoys_of("class T:\n    def test_a(self):\n        self.assertEqual(f(1), 7)\n")
    >>> [(decoy.test, decoy.text) for decoy in found]
    [('T.test_a', '8'), ('T.test_a', '2')]
    """
    starts = [0, *(end.end() for end in re.finditer(rb"\r\n?|\n", source.encode()))]
    try:
        body = parse_python(source).body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"a test file is no Python: {error}") from None
    found = []
    for case in [one for one in body if isinstance(one, ast.ClassDef)]:
        for test in case.body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test"):
                for constant in _asserted(test):
                    assert constant.end_lineno is not None and constant.end_col_offset is not None
                    start = starts[constant.lineno - 1] + constant.col_offset
                    end = starts[constant.end_lineno - 1] + constant.end_col_offset
                    found.append(Decoy(f"{case.name}.{test.name}", start, end, _another(constant.value)))
    return found


def changed(source: str, decoys: list[Decoy]) -> str:
    """A test file with some tests made wrong; no two of the changes may be of one place."""
    content = source.encode()
    for decoy in sorted(decoys, key=lambda one: one.start, reverse=True):
        content = content[: decoy.start] + decoy.text.encode() + content[decoy.end :]
    return content.decode()


def _asserted(test: ast.FunctionDef) -> Iterator[ast.Constant]:
    """The constants of assertions, those of their last arguments first."""
    for node in ast.walk(test):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert"):
            parts = node.args[1::-1]
        elif isinstance(node, ast.Assert):
            parts = [node.test]
        for part in parts:
            for one in ast.walk(part):
                if isinstance(one, ast.Constant) and type(one.value) in (bool, int, float, str):
                    yield one


def _another(value: Any) -> str:
    """A constant that looks as likely as `value`."""
    if isinstance(value, bool):
        return repr(not value)
    if isinstance(value, str):
        letter = value[-1:]
        other = chr(ord(letter) + (-1 if letter in "zZ9" else 1)) if letter.isascii() and letter.isalnum() else letter + "s"
        return repr(value[:-1] + other) if value else repr("a")
    return repr(value + 1)
