"""Text within base64, to search it for secrets and to write it back without them.

A run of base64 is decoded only if it holds text: in the groups of four characters that encode ASCII, three characters are of
half the alphabet or less, so six such groups in a row are text. Images and other blobs have none, or too few.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

# The characters at each place of a group that encodes printable ASCII, tabs or line ends.
_GROUP = r"[C-DI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_\-]"
TEXT_IN_BASE64 = rf"(?:{_GROUP}){{6}}"
_TEXT = re.compile(TEXT_IN_BASE64)
_LINE = 60
_RUN = re.compile(rf"(?:[A-Za-z0-9+/_\-]{{{_LINE},}}\r?\n)*[A-Za-z0-9+/_\-]{{8,}}={{0,2}}")
_CODEC = "utf-8", "surrogateescape"


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


def base64_runs(text: str, holds_known: Callable[[str], bool]) -> Iterator[Encoded]:
    """The runs of base64 that hold text or, as `holds_known` says, a known value.

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
