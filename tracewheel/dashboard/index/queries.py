"""What a reader types into the search as a query of the index: words, phrases, minus and star alone have a meaning."""

from __future__ import annotations

import re

from tracewheel.dashboard.index.episode_facts import mark

_PARTS = re.compile(r'(-?)"([^"]*)"|(\S+)')
MOST_WORDS = 32


def full_text_query(words: str, marks: dict[str, str]) -> str:
    """A query of FTS5.

    Args:
        words: `two words` are both in the episode, `"a phrase"` is there as it stands, `-word` is not, `wor*` begins so.
        marks: Kind to value of what is filtered: outcome, fault, stop, tool.

    Returns:
        "" where nothing is asked for.
    """
    wanted, unwanted = _terms(words)
    parts = [f"text : ({' AND '.join(wanted)})"] if wanted else []
    chosen = [_quoted(mark(kind, value)) for kind, value in marks.items() if value]
    if chosen:
        parts.append(f"marks : ({' AND '.join(chosen)})")
    if not parts:
        return ""
    query = " AND ".join(parts)
    return f"({query}) NOT text : ({' OR '.join(unwanted)})" if unwanted else query


def plain_words(words: str) -> list[str]:
    """The words and phrases that must be there, as they were typed: what a page marks in the text."""
    found = []
    for match in list(_PARTS.finditer(words))[:MOST_WORDS]:
        text = match.group(2) if match.group(3) is None else match.group(3)
        if not (match.group(1) or text.startswith("-")) and _is_word(text):
            found.append(text.rstrip("*"))
    return found


def _terms(words: str) -> tuple[list[str], list[str]]:
    wanted: list[str] = []
    unwanted: list[str] = []
    for match in list(_PARTS.finditer(words))[:MOST_WORDS]:
        minus, phrase, word = match.groups()
        text = phrase if word is None else word
        if word is not None and word.startswith("-"):
            minus, text = "-", word[1:]
        if not _is_word(text):
            continue
        begins = word is not None and text.endswith("*")
        (unwanted if minus else wanted).append(_quoted(text.rstrip("*")) + (" *" if begins else ""))
    return wanted, unwanted


def _is_word(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'
