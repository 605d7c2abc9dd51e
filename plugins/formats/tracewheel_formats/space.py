"""White space between the parts of a call."""

from __future__ import annotations

import re

_NOT_SPACE = re.compile(r"[^ \t\n\r]")


def skip_space(text: str, at: int) -> int:
    """The first position from `at` on that is not white space of JSON."""
    found = _NOT_SPACE.search(text, at)
    return found.start() if found else len(text)
