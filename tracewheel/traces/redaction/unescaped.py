r"""JSON text without its escapes, nested to any depth, and a map from each character back to the escaped text.

Call arguments are JSON text within JSON text, and tool replies often are too: `"` is written `\"` or `\\\"`, a line end
`\n`, and an address may hide behind `\u0040`. A search of the escaped text would miss some values and cut others in the
middle of an escape. The unescaped text is for searching only; values are replaced in the escaped text, where no other
character changes.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_ESCAPE = re.compile(r"(\\+)(?:u([0-9a-fA-F]{4})|([nrtbf\"'/]))")
_PERCENT = re.compile(rf"{_ESCAPE.pattern}|%(?:25)*([2-7][0-9a-fA-F])")
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " ", "/": "/"}
_DOUBLE, _SINGLE, _DEEPEST = 0xE000, 0xE100, 0xFF
QUOTES = "\"'`\ue000-\ue1ff"  # for a character class that matches any quote
_PLAIN = {**dict.fromkeys(range(_DOUBLE, _SINGLE), '"'), **dict.fromkeys(range(_SINGLE, _SINGLE + _DEEPEST + 1), "'")}


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
        pieces, at, length, offset = [], 0, 0, 0
        for match in escapes.finditer(written):
            start, end = match.span()
            pieces += [written[at:start], _character(match)]
            length += start - at + 1
            offset += end - start - 1
            at = end
            self._starts.append(length)
            self._offsets.append(offset)
        self.text = "".join([*pieces, written[at:]])
        self.plain = self.text.translate(_PLAIN)

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
