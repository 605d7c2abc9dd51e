"""Messages that a tracer logged as text: Python's `repr` of a message, and transcripts of `role: text`."""

from __future__ import annotations

import ast
import re
from typing import Any

FIELD = re.compile(r"\s*([A-Za-z_]\w*)=")
TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
SPEAKER = re.compile(r"^(system|developer|user|assistant|tool): ", re.MULTILINE)
OPENING, CLOSING = "([{<", ")]}>"


def read_repr(text: str) -> Any:
    """The value of a `repr`, a dictionary's or list's, or pydantic's `role='user' content='…'`; None for any other text."""
    if text[:1] in ("{", "["):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    if not text.startswith(("role=", "content=")):
        return None
    fields: dict[str, Any] = {}
    at = 0
    while match := FIELD.match(text, at):
        at = _end_of_value(text, match.end())
        fields[match[1]] = _literal(text[match.end() : at])
    return fields if at >= len(text.rstrip()) and fields.get("role") else None


def _end_of_value(text: str, start: int) -> int:
    depth, at = 0, start
    while at < len(text):
        if quoted := TEXT.match(text, at):
            at = quoted.end()
            continue
        if text[at] == " " and depth == 0:
            return at
        depth += (text[at] in OPENING) - (text[at] in CLOSING)
        at += 1
    return at


def _literal(text: str) -> Any:
    """The value; the text itself of what is no literal, such as another object's `repr`."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def read_transcript(text: str) -> list[dict[str, Any]] | None:
    """The messages of a transcript that begins with a role; None for any other text, and for one that has lost its calls."""
    if SPEAKER.match(text) is None:
        return None
    parts = SPEAKER.split(text)[1:]
    messages = [{"role": role, "content": said.rstrip("\n")} for role, said in zip(parts[::2], parts[1::2], strict=True)]
    return None if any(message["role"] == "tool" for message in messages) else messages
