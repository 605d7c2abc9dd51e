"""Log files as pieces: bytes in, one JSON value after the other out, each with the place it has in the file.

A file is either lines, each with a value of its own (JSONL), or documents: values written over many lines,
of which a list is cut into its elements. What begins a file decides. Of a file of lines, one line at a time is
in memory; of documents, one element.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import orjson

from tracewheel.traces.compression import ByteStream
from tracewheel.traces.json_cutter import KEPT_OF_TOO_LARGE, LARGEST, JsonCutter, Piece

Layout = Literal["lines", "documents"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD = 1 << 20
LINES_TRIED = 50
LINE_END = 0x0A
# What a written-out object goes on with after the last character of its first line.
FOLLOWED_BY = {b"{": b'"}', b",": b'"', b"[": b'"{[]-0123456789tfn'}


class Source:
    """A log file, from its beginning or from where an earlier reading of it ended.

    Args:
        path: The file.
        start: Where to begin: byte and line number; anything but the beginning is for files of lines only.
        largest: Bytes of the largest value that is taken into memory.

    Attributes:
        layout: Whether the file is lines or documents.
        offset: Once all is read, the byte that a later reading is to begin at: the end, or the beginning of a last line
            that no line end ends.
        line: The number of the line that `offset` is on.
    """

    def __init__(self, path: Path, start: tuple[int, int] = (0, 1), largest: int = LARGEST) -> None:
        self.path, self.largest = path, largest
        self.offset, self.line = start
        self._unfinished = 0
        self.layout: Layout = "lines" if start[0] else find_layout(path)

    def pieces(self) -> Iterator[Piece]:
        """The values of the file; blank lines are none. No bytes raise.

        Raises:
            OSError: the file cannot be read.
        """
        with ByteStream(self.path, self.offset) as stream:
            yield from self._lines(stream) if self.layout == "lines" else self._documents(stream)
            if stream.damage:
                yield Piece(b"", self.line, self.offset, 0, "compression damaged", True)

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
        """The last line has no line end, yet its value is whole: a later reading is to begin behind it."""
        self.offset, self._unfinished = self.offset + self._unfinished, 0


def find_layout(path: Path) -> Layout:
    """Whether a file is lines or documents, by its first bytes.

    Raises:
        OSError: the file cannot be read.
    """
    with ByteStream(path) as stream:
        head = stream.read(HEAD)
    return layout_of(head.removeprefix(BYTE_ORDER_MARK).lstrip(), whole=len(head) < HEAD)


def layout_of(head: bytes, *, whole: bool) -> Layout:
    """Whether what begins like this is lines or documents.

    Args:
        head: The first bytes, from the first that is not blank.
        whole: Whether these are all bytes.
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
