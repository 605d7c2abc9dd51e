r"""The values of JSON text, each with its place, and replacements in them that leave every other character as it was.

A value is searched alone, so that no match runs from one value into the next, and a replacement fits at any depth: text within
text is replaced in its own escapes.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from tracewheel.traces.redaction.unescaped import without_blobs

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)"|(-?[0-9][0-9.eE+\-]*+)|[{}\[\],]', re.DOTALL)
_COLON = re.compile(r"\s*:")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_LONGEST_NAME = 120
_OPENS, _MAY_HOLD_BLOB = frozenset('{["'), 1024
PLAIN_KEY = re.compile(r"[A-Za-z_]{0,60}")  # a key that is no value
_NAMES = frozenset({"name", "key"})  # `{"name": "PASSWORD", "value": "…"}`
_PLAIN = frozenset({"content", "text", "value", "arguments", "description", "output", "input", "result", "message"})
# A quote that no text has. Detectors read it as one, and it never closes a quotation within the value.
QUOTE = "\ue000"
MAY_BE_JSON = re.compile(rf"(?:\A|{QUOTE})\s*[{{\[\"]")  # a line of `searchable` whose value may be
Sort = Literal["key", "text", "number"]


class Context(NamedTuple):
    """The name of the field that holds a value, and how it precedes the value for a detector."""

    name: str = ""
    before: str = ""


class Leaf(NamedTuple):
    """A string, number or key of JSON text.

    Attributes:
        start: Its first character in the text, without the quote.
        end: The character after its last.
        sort: What it is.
        value: The string, or the digits.
        at: Its context.
        fields: The object that a key belongs to.
    """

    start: int
    end: int
    sort: Sort
    value: str
    at: Context
    fields: Fields


class Edit(NamedTuple):
    """A replacement of `start` to `end` of a text, and the kinds of the values that it replaces."""

    start: int
    end: int
    text: str
    kinds: tuple[str, ...]


@dataclass
class Fields:
    """An object or list that is being read."""

    is_object: bool
    inherited: str = ""
    name: str = ""
    keys: set[str] = field(default_factory=set)
    named: str = ""
    words: list[str] = field(default_factory=list)

    def context(self, quote: str) -> Context:
        """The context of the next value, which begins with this quote."""
        if self.is_object:
            name = self.named if self.name == "value" and self.named else self.name
        elif self.words and self.words[-1].startswith("-"):
            command = " ".join(self.words[-8:])[-2 * _LONGEST_NAME :]  # a command line: `["--password", "…"]`
            return Context(self.inherited, command + " ")
        else:
            name = self.inherited
        return Context(name, f"{QUOTE}{name}{QUOTE}: {quote}" if _is_telling(name) else "")

    def note(self, value: str) -> None:
        """Remember a value as the context of the next."""
        if not self.is_object:
            self.words.append(value if len(value) <= _LONGEST_NAME else "")
        elif self.name in _NAMES and len(value) <= _LONGEST_NAME:
            self.named = value


def is_json(text: str) -> bool:
    """Whether a text is a JSON object, list or string; in a string there may be more."""
    first, last = text.lstrip()[:1], text.rstrip()[-1:]
    if (first, last) not in (("{", "}"), ("[", "]"), ('"', '"')):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        try:
            json.loads(text)  # which also reads NaN and half of a surrogate pair
        except (ValueError, RecursionError):
            return False
    return True


def searchable(value: Any) -> list[str]:
    """The texts and numbers of a value, and of JSON text in it, a line each with its context (`Fields.context`)."""
    lines: list[str] = []
    _collect(value, "", lines.append)
    return lines


def _collect(value: Any, name: str, add: Callable[[str], None]) -> None:
    kind = type(value)
    if kind is str:
        if value[:1] in _OPENS:
            try:
                inner = orjson.loads(value)
            except ValueError:
                inner = value
            if inner is not value:
                return _collect(inner, name, add)
        if len(value) >= _MAY_HOLD_BLOB:
            value = without_blobs(value)
        add(f"{QUOTE}{name}{QUOTE}: {QUOTE}{value}{QUOTE}" if _is_telling(name) else value)
    elif kind is dict:
        named = (
            next((item for key, item in value.items() if key in _NAMES and type(item) is str), "") if "value" in value else ""
        )
        for key, item in value.items():
            if key not in _PLAIN and not PLAIN_KEY.fullmatch(key):
                add(key)
            if type(item) is str and len(item) < _MAY_HOLD_BLOB and key in _PLAIN and not named and item[:1] not in _OPENS:
                add(item)  # most of all, so without a call
            elif item is not None:
                _collect(item, named if named and key == "value" else key, add)
    elif kind is list:
        if any(type(item) is str and item[:1] == "-" for item in value):  # a command line
            add(" ".join(item for item in value if type(item) is str))
        for item in value:
            _collect(item, name, add)
    elif kind is int or kind is float:
        add(f"{QUOTE}{name}{QUOTE}: {value}" if _is_telling(name) else str(value))
    return None


def _is_telling(name: str) -> bool:
    """Whether a name says what its value is. A pseudonym such as REDACTED_TOKEN_1 in it would make a token of its value."""
    return name not in _PLAIN and 0 < len(name) <= _LONGEST_NAME and "REDACTED_" not in name


def leaves(text: str, name: str = "") -> Iterator[Leaf]:
    """The strings, numbers and keys of valid JSON text, in order; `name` is the field that holds the text."""
    stack = [Fields(False, name)]
    expects_key = False
    for match in _TOKEN.finditer(text):
        top = stack[-1]
        raw, number = match.groups()
        if raw is not None:
            value = _decoded(raw)
            if expects_key and _COLON.match(text, match.end()):
                top.name, expects_key = value, False
                top.keys.add(value)
                yield Leaf(match.start(1), match.end(1), "key", value, Context(), top)
            else:
                yield Leaf(match.start(1), match.end(1), "text", value, top.context(QUOTE), top)
                top.note(value)
        elif number is not None:
            yield Leaf(match.start(2), match.end(2), "number", number, top.context(""), top)
            top.note(number)
        elif (mark := match.group()) in "{[":
            name = top.name if top.is_object else top.inherited
            stack.append(Fields(mark == "{", "" if mark == "{" else name))
            expects_key = mark == "{"
        elif mark in "}]":
            if len(stack) > 1:
                stack.pop()
            expects_key = False
        else:
            expects_key = top.is_object


def in_text(leaf: Leaf, edits: list[Edit], text: str) -> list[Edit]:
    """The edits of a leaf's value as edits of the text around it."""
    if leaf.sort == "number":
        new = applied(leaf.value, edits)
        kinds = tuple(kind for edit in edits for kind in edit.kinds)
        return [Edit(leaf.start, leaf.end, new if _NUMBER.fullmatch(new) else f'"{escaped(new)}"', kinds)]
    place = _places(text[leaf.start : leaf.end])
    return [
        Edit(leaf.start + place(edit.start), leaf.start + place(edit.end), escaped(edit.text), edit.kinds) for edit in edits
    ]


def applied(text: str, edits: list[Edit]) -> str:
    """The text with edits, which are in order and do not overlap."""
    pieces, at = [], 0
    for edit in edits:
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def escaped(text: str) -> str:
    """A text as it stands in a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _decoded(raw: str) -> str:
    if "\\" not in raw:
        return raw
    return str(json.loads(f'"{raw}"', strict=False))


def _places(raw: str) -> Callable[[int], int]:
    """Maps a place in the decoded string to one in the escaped string."""
    if "\\" not in raw:
        return lambda place: place
    starts, offsets, offset = [], [], 0
    for match in _ESCAPE.finditer(raw):
        offset += match.end() - match.start() - 1
        starts.append(match.end() - offset)
        offsets.append(offset)

    def place(position: int) -> int:
        index = bisect_right(starts, position)
        return position + (offsets[index - 1] if index else 0)

    return place


def as_bytes(value: Any) -> bytes:
    """A text, or any JSON value as JSON, in UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, or a number of more than 64 bits
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
