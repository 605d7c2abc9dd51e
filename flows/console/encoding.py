"""Texts of any content on terminals of any encoding."""

from __future__ import annotations

import codecs
import sys
import unicodedata

# Our own typography where the terminal's encoding lacks it.
PLAIN = {
    "–": "-",
    "—": "-",
    "−": "-",
    "→": "->",
    "…": "...",
    "·": "-",
    "×": "x",
    "«": '"',
    "»": '"',
    "’": "'",
    "“": '"',
    "”": '"',
}


def print_in_any_encoding() -> None:
    """Let standard output replace what its encoding lacks, instead of failing."""
    codecs.register_error("tracewheel", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="tracewheel")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in missing), error.end


def clean(text: str) -> str:
    """A text without control characters, which could move the cursor or hide what is shown."""
    return "".join(character if character.isprintable() or character == "\n" else _escape(character) for character in text)


def _escape(character: str) -> str:
    if unicodedata.category(character) in ("Zs", "Zl", "Zp") or character == "\t":
        return " "
    return character.encode("unicode_escape").decode()
