"""Words that a person writes into a record: a name, a note."""

from __future__ import annotations

import unicodedata

from tracewheel.core.errors import InputError

# Controls, halves of pairs, and marks that a reader does not see or that change the order of others.
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def plain_words(text: str, what: str, most: int, *, empty: bool = False) -> str:
    """A text of one line without characters that nobody sees.

    Args:
        text: What was written.
        what: What it is, for the error.
        most: Characters allowed.
        empty: Whether it may be left out.

    Raises:
        InputError: it is empty, too long, or holds such a character.
    """
    words = text.strip()
    if not words and not empty:
        raise InputError(f"{what} is missing")
    if len(words) > most:
        raise InputError(f"{what} has {len(words):,} characters; at most {most} are kept")
    for letter in words:
        if unicodedata.category(letter) in UNSEEN:
            raise InputError(f"{what} holds the character U+{ord(letter):04X}, which nobody sees; write it in one plain line")
    return words
