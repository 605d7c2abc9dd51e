r"""JSON text without its escapes, nested to any depth, and a map from each character back to the escaped text.

Call arguments are JSON text within JSON text, and tool replies often are too: `"` is written `\"` or `\\\"`, a line end
`\n`, and an address may hide behind `\u0040`. A search of the escaped text would miss some values and cut others in the
middle of an escape. The unescaped text is for searching only; values are replaced in the escaped text, where no other
character changes.

Text within base64 is found, too, to search it for secrets and to write it back without them.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple

_ESCAPE = re.compile(r"(\\+)(?:u([0-9a-fA-F]{4})|([nrtbf\"'/]))")
_PERCENT = re.compile(rf"{_ESCAPE.pattern}|%(?:25)*([2-7][0-9a-fA-F])")
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " ", "/": "/"}
_DOUBLE, _SINGLE, _DEEPEST = 0xE000, 0xE100, 0xFF
QUOTES = "\"'`\ue000-\ue1ff"  # for a character class that matches any quote
_PLAIN = {**dict.fromkeys(range(_DOUBLE, _SINGLE), '"'), **dict.fromkeys(range(_SINGLE, _SINGLE + _DEEPEST + 1), "'")}

# The characters at each place of a group that encodes printable ASCII, tabs or line ends.
_GROUP = r"[C-DI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_\-]"
TEXT_IN_BASE64 = rf"(?:{_GROUP}){{6}}"
_TEXT = re.compile(TEXT_IN_BASE64)
_LINE = 60
_RUN = re.compile(rf"(?:[A-Za-z0-9+/_\-]{{{_LINE},}}\r?\n)*[A-Za-z0-9+/_\-]{{8,}}={{0,2}}")
_CODEC = "utf-8", "surrogateescape"
# A shorter run may be a key. Every 512th character of a text is looked at, so that a search costs nothing.
_LONG, _STEP = 1024, 512
_BLOB, _BEFORE_BLOB = re.compile(r"[A-Za-z0-9+/_\-]*+={0,2}"), re.compile(r"[A-Za-z0-9+/_\-]*\Z")


class Unescaped:
    """Unescaped text.

    In `text`, quotes at each depth of nesting have their own character, so that a closing quote differs from a quote within
    the quotation. `plain` has the same length, with ordinary quotes.

    Args:
        written: The text, with or without escapes, whole or damaged.
        percent: Whether `%40` is an escape too, as in URLs.
    """

    def __init__(self, written: str, *, percent: bool = False) -> None:
        self.text = self.plain = written
        self._starts: list[int] = []
        self._offsets: list[int] = []
        if percent or "\\" in written:
            self._unescape(written, _PERCENT if percent else _ESCAPE)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span in the escaped text of `text[start:end]`; an escape is never cut."""
        return self._place(start), self._place(end)

    def _unescape(self, written: str, escapes: re.Pattern[str]) -> None:
        pieces: list[str] = []
        at = length = offset = 0
        for match in escapes.finditer(written):
            start, end = match.span()
            pieces += (written[at:start], _character(match))
            length += start - at + 1
            offset += end - start - 1
            at = end
            self._starts.append(length)
            self._offsets.append(offset)
        pieces.append(written[at:])
        self.text = "".join(pieces)
        pieces[1::2] = [_PLAIN.get(ord(character), character) for character in pieces[1::2]]
        self.plain = "".join(pieces)

    def _place(self, position: int) -> int:
        index = bisect_right(self._starts, position)
        return position + (self._offsets[index - 1] if index else 0)


def _character(match: re.Match[str]) -> str:
    backslashes, code, escaped, *percent = match.groups()
    if code or any(percent):
        return chr(int(code or percent[0], 16))
    if escaped in "\"'":
        return chr((_DOUBLE if escaped == '"' else _SINGLE) + min(len(backslashes), _DEEPEST))
    return _CHARACTERS[escaped]


class Encoded(NamedTuple):
    """A run of base64 from `start` to `end` of a text, and what it says; bytes that are no text are surrogates."""

    start: int
    end: int
    written: str
    text: str

    @property
    def is_text(self) -> bool:
        """Whether all of it is readable text."""
        return all(c.isprintable() or c in "\n\r\t" for c in self.text)

    def again(self, text: str) -> str:
        """Another text in base64, in the alphabet, lines and padding of this one."""
        made = base64.b64encode(text.encode(*_CODEC)).decode()
        if "-" in self.written or "_" in self.written:
            made = made.replace("+", "-").replace("/", "_")
        compact = "".join(self.written.split())
        if len(compact) % 4 or ("=" not in compact and ("-" in compact or "_" in compact)):
            made = made.rstrip("=")
        first, newline, _ = self.written.partition("\n")
        if newline:
            width, mark = len(first.rstrip("\r")), "\r\n" if first.endswith("\r") else "\n"
            made = mark.join(made[at : at + width] for at in range(0, len(made), width))
        return made


def _spaces(run: str) -> str:
    return " " * len(run)


def without_blobs(text: str, instead: Callable[[str], str] = _spaces) -> str:
    """The text with spaces in place of long base64 that is no text, such as an image, so that nothing is searched there."""
    pieces, done = [], 0
    for at in range(_STEP, len(text), _STEP) if len(text) >= _LONG else ():
        if at < done or not (found := _BLOB.match(text, at)) or found.end() - at < _LONG - _STEP:
            continue
        lead = _BEFORE_BLOB.search(text, max(done, at - _STEP), at)
        begin, end = lead.start() if lead else at, found.end()
        if end - begin >= _LONG and not _TEXT.search(text, begin, begin + 100):
            pieces += [text[done:begin], instead(text[begin:end])]
            done = end
    return "".join([*pieces, text[done:]]) if pieces else text


def base64_runs(text: str, holds_known: Callable[[str], bool]) -> Iterator[Encoded]:
    """The runs of base64 that hold text or, as `holds_known` says, a known value.

    A run of base64 is decoded only if it holds text: in the groups of four characters that encode ASCII, three characters are
    of half the alphabet or less, so six such groups in a row are text. Images and other blobs have none, or too few.

    A run may follow other characters of the alphabet, as in a path, so it is decoded from each of four places.
    """
    for match in _RUN.finditer(text):
        run = match.group()
        inner = _TEXT.search(run)
        if not inner and not holds_known(run):
            continue
        for skip in (inner.start() % 4,) if inner and "\n" not in run else range(4):
            decoded = _decoded(run[skip:])
            if decoded:
                yield Encoded(match.start() + skip, match.end(), run[skip:], decoded)


def _decoded(run: str) -> str:
    compact = "".join(run.split()).rstrip("=").replace("-", "+").replace("_", "/")
    compact = compact[: len(compact) - (len(compact) % 4 == 1)]
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4)).decode(*_CODEC)
    except binascii.Error:
        return ""


def encoding_of(raw: bytes) -> tuple[str, str]:
    """The codec and error handler that decode these bytes so that encoding restores them."""
    if raw.count(0) * 4 < len(raw) or len(raw) % 2:
        return "utf-8", "surrogateescape"
    # Mostly ASCII in UTF-16: every second byte is 0.
    return "utf-16-le" if raw[1::2].count(0) >= raw[0::2].count(0) else "utf-16-be", "surrogatepass"


def digest_of_blob(run: str) -> str:
    """What stands for long base64 in an excerpt."""
    return f"[{len(run)} characters of base64, sha256 {sha256(run.encode()).hexdigest()}]"
