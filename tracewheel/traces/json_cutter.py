"""Cuts a stream of JSON documents into values: the elements of a list, or the document itself.

It looks at strings and brackets only; the parser decides whether a value is valid. Where brackets do not match, or a
string has no end, it continues at the next line that begins as the first value did, so that a damaged element costs no
other. ijson gives neither bytes nor places and stops at the first damage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import orjson

CHUNK = 1 << 20
LARGEST = 64 << 20
KEPT_OF_TOO_LARGE = 1 << 20
DEEPEST = 10_000  # far deeper than a parser follows; a gigabyte of brackets is not matched to its end
DECODER = json.JSONDecoder()
OPENING, CLOSING = b"{[", b"}]"
TOKEN = re.compile(rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|[{}\[\]"]')
BEGUN_STRING = re.compile(rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+')
GAP = re.compile(rb"[\s,]*+")
SPACE = re.compile(rb"\s*+")
SCALAR = re.compile(rb'[^\s,\]\[{}"]++|.', re.DOTALL)
FIRST_KEY = re.compile(rb'\{\s*"[^"\\\n]{1,64}"')
SECOND_LINE = re.compile(rb"[^\n]*\n([ \t]*)")
LONGEST_BEGINNING = 256
QUOTE = 0x22


class Piece(NamedTuple):
    """The bytes of one JSON value.

    It begins at `line` (from 1) and `offset` (from 0). `document` numbers the list in the file that it is an element of;
    0 means none. `damage` is a reason to quarantine it without parsing. `is_last`: nothing follows, not even a line end.
    """

    raw: bytes
    line: int
    offset: int
    document: int = 0
    damage: str = ""
    is_last: bool = False


class _Beginning(NamedTuple):
    """How values begin: the group of `pattern` matches the beginning of a value; `indentation` is that of its line."""

    indentation: int
    pattern: re.Pattern[bytes]
    on_a_line: bool


class _Damaged(Exception):
    """The brackets do not match."""


class JsonCutter:
    """The pieces of one stream.

    Args:
        read: Returns up to so many bytes, none at the end.
        largest: Bytes of the largest value to hold in memory.
    """

    def __init__(self, read: Callable[[int], bytes], largest: int = LARGEST) -> None:
        self._read, self._largest = read, largest
        self._text: str | None = None
        self._set_buffer(b"")
        self._position, self._ended = 0, False
        self._before, self._line, self._counted = 0, 1, 0
        self._document, self._in_list = 0, False
        self._kept, self._is_small = b"", True
        self._beginning: _Beginning | None = None

    def pieces(self) -> Iterator[Piece]:
        """The values, in the order of the file."""
        piece: Piece | None = None
        while self._skip(GAP if self._in_list else SPACE):
            byte = self._buffer[self._position : self._position + 1]
            if byte == b"]" and self._in_list:
                self._in_list, self._position, self._beginning = False, self._position + 1, None
            elif byte == b"[" and not self._in_list:
                self._document, self._in_list, self._position = self._document + 1, True, self._position + 1
                self._beginning = None
            else:
                piece = self._cut()
                yield piece
        if self._in_list and not (piece and piece.is_last):
            yield Piece(b"", self._line_at(self._position), self._before + self._position, self._document, "truncated", True)

    def _skip(self, gap: re.Pattern[bytes]) -> bool:
        """Advance to the next value; False at the end."""
        while True:
            found = gap.match(self._buffer, self._position)
            self._position = found.end() if found else self._position
            if self._position < len(self._buffer):
                return True
            self._drop_what_is_done()
            if not self._more():
                return False

    def _cut(self) -> Piece:
        self._drop_what_is_done()
        line, offset = self._line_at(self._position), self._before + self._position
        document = self._document if self._in_list else 0
        self._kept = b""
        self._beginning = self._beginning or self._how_it_begins()
        try:
            end, damage = self._end_before_the_next() or self._end_of_valid_value() or self._end_of_value(), ""
            self._check_what_follows(end)
        except EOFError:
            found = self._next_beginning(at_end=True)
            end, damage = (len(self._buffer), "truncated") if found is None else (found, "not JSON")
        except _Damaged:
            found = self._next_beginning()
            end, damage = len(self._buffer) if found is None else found, "not JSON"
        raw = self._buffer[self._position : end].rstrip()
        self._is_small = end - self._position <= CHUNK // 4
        self._position = end
        if self._kept:
            return Piece(self._kept, line, offset, document, "too large")
        return Piece(raw, line, offset, document, damage, damage == "truncated")

    def _end_before_the_next(self) -> int | None:
        """The end of the value, if it is right before the next text that begins as the first value did; else None.

        A guess, and the fastest way: what parses is a whole value.
        """
        found = self._beginning.pattern.search(self._buffer, self._position + 1) if self._beginning and self._in_list else None
        raw = self._buffer[self._position : found.start(1)].rstrip() if found else b""
        if not raw.endswith(b","):
            return None
        try:
            orjson.loads(memoryview(raw)[:-1])
        except orjson.JSONDecodeError:
            return None
        return self._position + len(raw) - 1

    def _end_of_valid_value(self) -> int | None:
        """The end of the value, if it is valid JSON and ends within the buffer; else None.

        Several times as fast as matching brackets. It is not tried on values that may well end beyond the buffer.
        """
        is_near_end = len(self._buffer) - self._position < CHUNK // 4
        if is_near_end or not self._is_small or self._buffer[self._position] not in OPENING:
            return None
        if self._text is None:
            self._text = self._buffer.decode("latin-1")  # one character for each byte, so that positions agree
        try:
            return DECODER.raw_decode(self._text, self._position)[1]
        except (ValueError, RecursionError):
            return None

    def _end_of_value(self) -> int:
        """The end of the value at the position. The position advances when the value is too large to keep.

        Raises:
            EOFError: the stream ends first.
            _Damaged: its brackets do not match.
        """
        if self._buffer[self._position] not in OPENING + b'"':
            return self._end_of_scalar()
        open_brackets = bytearray()
        searched = self._position
        while True:
            for token in TOKEN.finditer(self._buffer, searched):
                at = token.start()
                byte = self._buffer[at]
                if byte in OPENING:
                    open_brackets.append(byte)
                    if len(open_brackets) > DEEPEST:
                        raise _Damaged
                    continue
                if byte == QUOTE and token.end() - at == 1:
                    if self._buffer.find(b"\n", at) >= 0:
                        raise _Damaged
                    searched = at
                    break
                if byte != QUOTE and open_brackets.pop() != OPENING[CLOSING.index(byte)]:
                    raise _Damaged
                if not open_brackets:
                    return token.end()
            else:
                searched = len(self._buffer)
            if len(self._buffer) - self._position > self._largest:
                self._kept = self._kept or self._buffer[self._position : self._position + KEPT_OF_TOO_LARGE]
                self._forget_up_to(searched)
                searched = self._position
            if not self._more():
                raise EOFError

    def _forget_up_to(self, searched: int) -> None:
        """Drop the searched part of a too large value; of a string that has not ended keep the opening quote."""
        self._line_at(searched)
        begun = BEGUN_STRING.match(self._buffer, searched)
        end, quote = (begun.end(), b'"') if begun else (searched, b"")
        self._set_buffer(quote + self._buffer[end:])
        self._before, self._position, self._counted = self._before + end - len(quote), 0, 0

    def _end_of_scalar(self) -> int:
        while True:
            found = SCALAR.match(self._buffer, self._position)
            assert found
            if found.end() < len(self._buffer) or found.end() - self._position > self._largest or not self._more():
                return found.end()

    def _check_what_follows(self, end: int) -> None:
        """In a list, hold what follows the value to be a comma or the end of the list.

        Raises:
            _Damaged: something else follows.
        """
        while self._in_list:
            found = SPACE.match(self._buffer, end)
            assert found
            if found.end() < len(self._buffer):
                if self._buffer[found.end()] not in b",]":
                    raise _Damaged
                return
            if not self._more():
                return

    def _how_it_begins(self) -> _Beginning | None:
        """How the values of this list begin: on a line of their own, or with the same key after a comma."""
        line_start = self._buffer.rfind(b"\n", 0, self._position) + 1
        indentation = self._buffer[line_start : self._position]
        opening = self._buffer[self._position : self._position + 1]
        has_line = line_start > 0 or not self._before
        if has_line and (not indentation.strip() or (indentation.strip() == b"[" and self._buffer.find(b"\n") >= 0)):
            indentation = b"" if indentation.strip() else indentation
            return _Beginning(len(indentation), re.compile(rb"\n" + indentation + rb"(" + re.escape(opening) + rb")"), True)
        first_key = FIRST_KEY.match(self._buffer, self._position)
        if first_key is None or not self._in_list:
            return None
        return _Beginning(0, re.compile(rb",\s*(" + re.escape(first_key.group()) + rb")"), False)

    def _next_beginning(self, *, at_end: bool = False) -> int | None:
        """The beginning of the next value after a damaged one: text that begins as the first value did.

        Where the stream ends within a value, its inner values may begin alike, unless they are indented further.
        """
        beginning = self._beginning if not self._kept else None
        if beginning and at_end:
            second = SECOND_LINE.match(self._buffer, self._position)
            is_written_out = self._buffer[self._position : self._position + 2].strip() in (b"{", b"[")
            if not beginning.on_a_line or (is_written_out and (second is None or len(second[1]) <= beginning.indentation)):
                beginning = None
        searched = self._position + 1
        while True:
            found = beginning.pattern.search(self._buffer, searched) if beginning else None
            if found:
                return found.start(1)
            searched = max(searched, len(self._buffer) - LONGEST_BEGINNING)
            if len(self._buffer) - self._position > self._largest or not self._more():
                return None

    def _more(self) -> bool:
        """Read more, in steps that grow with the value, so that a large one is not searched again and again."""
        block = b"" if self._ended else self._read(max(CHUNK, len(self._buffer) - self._position))
        self._ended = not block
        self._set_buffer(self._buffer + block)
        return bool(block)

    def _set_buffer(self, buffer: bytes) -> None:
        self._buffer, self._text = buffer, None

    def _drop_what_is_done(self) -> None:
        """Drop the bytes before the position's line, once they are many."""
        if self._position < CHUNK:
            return
        line_start = self._buffer.rfind(b"\n", 0, self._position) + 1
        done = line_start if self._position - line_start < CHUNK else self._position
        self._line_at(done)
        self._set_buffer(self._buffer[done:])
        self._position -= done
        self._before, self._counted = self._before + done, self._counted - done

    def _line_at(self, position: int) -> int:
        if position < self._counted:
            self._line -= self._buffer.count(b"\n", position, self._counted)
        else:
            self._line += self._buffer.count(b"\n", self._counted, position)
        self._counted = position
        return self._line
