"""Splits a log file into pieces: one JSON value after the other, each with its place in the file.

A file holds either lines, one value each (JSONL), or documents: values that span lines, where a list is cut into its
elements. The beginning of the file decides which. One line or one element is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import orjson

from tracewheel.core.files import EXPANDS, LARGEST_EXPANSION
from tracewheel.traces.compression import ByteStream, Slice
from tracewheel.traces.json_cutter import KEPT_OF_TOO_LARGE, LARGEST, JsonCutter, Piece

Layout = Literal["lines", "documents"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD = 1 << 20
LINES_TRIED = 50
LINE_END = 0x0A
# How an indented object continues after the last character of its first line.
FOLLOWED_BY = {b"{": b'"}', b",": b'"', b"[": b'"{[]-0123456789tfn'}


class LogFile:
    """A log file, read from its beginning or from where an earlier read ended.

    Args:
        path: The file.
        start: The byte and line number to begin at; only a file of lines can begin in the middle.
        largest: Bytes of the largest value to hold in memory.
        slices: Read only these, the first of which begins at `start`.
        expansion: To how many times its size a compressed file may expand.

    Attributes:
        layout: Whether the file holds lines or documents.
        offset: After reading, the byte where the next read begins: the end of the file, or the start of an unfinished
            last line.
        line: The line number at `offset`.
    """

    def __init__(
        self,
        path: Path,
        start: tuple[int, int] = (0, 1),
        largest: int = LARGEST,
        slices: Sequence[Slice] = (),
        expansion: int = LARGEST_EXPANSION,
    ) -> None:
        self.path, self.largest, self._slices, self._expansion = path, largest, slices, expansion
        self.offset, self.line = start
        self._unfinished = 0
        self.layout: Layout = "lines" if start[0] else find_layout(path, slices)

    def pieces(self) -> Iterator[Piece]:
        """The values of the file; blank lines are skipped. No content raises.

        Raises:
            OSError: the file cannot be read.
        """
        with ByteStream(self.path, self.offset, self._slices, self._expansion) as stream:
            yield from self._lines(stream) if self.layout == "lines" else self._documents(stream)
            if stream.damage:
                damage = EXPANDS if stream.damage == EXPANDS else "compression damaged"
                yield Piece(b"", self.line, self.offset, 0, damage, True)

    def _documents(self, stream: ByteStream) -> Iterator[Piece]:
        head = stream.read(len(BYTE_ORDER_MARK))
        first = head.removeprefix(BYTE_ORDER_MARK)
        blocks = [first] if first else []
        skipped = len(head) - len(first)
        for piece in JsonCutter(lambda size: blocks.pop() if blocks else stream.read(size), self.largest).pieces():
            self.line, self.offset = piece.line, skipped + piece.offset
            yield piece._replace(offset=self.offset) if skipped else piece

    def _lines(self, stream: ByteStream) -> Iterator[Piece]:
        number, offset, unfinished = self.line, self.offset, 0
        readline, limit = stream.readline, self.largest
        first = offset == 0
        while raw := readline(limit):
            length, damage = len(raw), ""
            ended = raw[-1] == LINE_END
            if not ended and length == limit:
                damage = "too large"
                while not ended and (rest := readline(limit)):
                    length, ended = length + len(rest), rest[-1] == LINE_END
                raw = raw[:KEPT_OF_TOO_LARGE]
            if first:
                raw, first = raw.removeprefix(BYTE_ORDER_MARK), False
            raw = raw.rstrip(b"\r\n")
            if raw and not raw.isspace():
                yield Piece(raw, number, offset, 0, damage, not ended)
            if ended:
                offset += length
                number += 1
            else:
                unfinished = length
        self.offset, self.line, self._unfinished = offset, number, unfinished

    def take_last_line(self) -> None:
        """Count the unfinished last line as read: its value is complete, so the next read begins after it."""
        self.offset, self._unfinished = self.offset + self._unfinished, 0


def find_layout(path: Path, slices: Sequence[Slice] = ()) -> Layout:
    """Whether a file, or slices of it, hold lines or documents, by the first bytes.

    Raises:
        OSError: the file cannot be read.
    """
    stream = ByteStream(path, slices=slices)
    try:
        head = stream.read(HEAD)
    finally:
        stream.close()
    return layout_of(head.removeprefix(BYTE_ORDER_MARK).lstrip(), whole=len(head) < HEAD)


def layout_of(head: bytes, *, whole: bool) -> Layout:
    """Whether a file that begins with `head` holds lines or documents.

    Args:
        head: The first bytes, without leading whitespace.
        whole: Whether `head` is the whole file.
    """
    if head[:1] not in (b"[", b"{"):
        return "lines"
    first, *rest = head.split(b"\n", LINES_TRIED)
    following = [line for line in rest[: LINES_TRIED - 1] if line.strip()]
    if _is_json(first):
        return "documents" if head[:1] == b"[" and not following else "lines"
    if not rest and not whole:
        return "documents" if head[:1] == b"[" else "lines"
    left = [head]
    value = next(JsonCutter(lambda size: left.pop() if left else b"").pieces())
    if not value.damage and _is_json(value.raw) and (head[:1] == b"[" or b"\n" in value.raw):
        return "documents"
    if any(line[:1] == b"{" and _is_json(line) for line in following):
        return "lines"
    opened = first.rstrip()[-1:]
    goes_on = bool(following) and opened in FOLLOWED_BY and following[0].lstrip()[:1] in FOLLOWED_BY[opened]
    return "documents" if goes_on or head[:1] == b"[" else "lines"


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
