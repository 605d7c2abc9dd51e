"""Taking texts out of files that stay, JSON and lines of text, and lines out of logs.

A conversation goes whole: without its user's name nobody could find the rest of it again.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from tracewheel import DataError, read_json, rewrite_whole
from tracewheel_forgetting.file_search import Searcher

GONE = "(forgotten)"
TEXT_SUFFIXES = (".txt", ".log", ".md", ".yaml", ".yml", ".csv")


class Scrubber:
    """Takes texts out of files.

    Args:
        texts: What to take out, as `file_search.Searcher` finds it in JSON and in plain text.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        longest_first = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))
        self._known = set(longest_first)
        self._searcher = Searcher(longest_first)
        self._expression = re.compile("|".join(map(_whole_word, longest_first))) if longest_first else None

    def scrub(self, path: Path) -> bool:
        """Take the texts out of a file; False for one of a kind that is not understood, which is unchanged.

        Raises:
            DataError: a JSON file is damaged.
        """
        if path.suffix == ".json":
            rewrite_whole(path, lambda _: json.dumps(self.clean(read_json(path)), indent=2).encode() + b"\n")
        elif path.suffix == ".jsonl":
            rewrite_whole(path, lambda data: b"".join(self._lines(data)))
        elif path.suffix in TEXT_SUFFIXES:
            rewrite_whole(path, self._plain)
        else:
            return False
        return True

    def _plain(self, data: bytes) -> bytes:
        return self._text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """The lines that stay, those without anything as they are; a torn one that holds something goes, too."""
        for line in data.splitlines(keepends=True):
            if not self._searcher.texts_in_bytes(line):
                yield line
                continue
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if not _is_conversation(value):
                yield json.dumps(self.clean(value)).encode() + b"\n"

    def _is_theirs(self, value: Any) -> bool:
        return _is_conversation(value) and bool(self._searcher.texts_in_bytes(json.dumps(value).encode()))

    def clean(self, value: Any) -> Any:
        """JSON types without the texts."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.clean(entry) for entry in value if not self._is_theirs(entry)]
        if isinstance(value, dict):
            return {self._text(key): self.clean(entry) for key, entry in value.items()}
        return value

    def _text(self, text: str) -> str:
        if text in self._known:
            return GONE
        return self._expression.sub(GONE, text) if self._expression else text


def _is_conversation(value: Any) -> bool:
    """Whether a record holds a conversation: a trace, a request, or what a challenger would have said (`serve`)."""
    return isinstance(value, dict) and (isinstance(value.get("messages"), list) or {"conversation", "shadow"} <= value.keys())


def _whole_word(text: str) -> str:
    begin, end = (r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])")
    return f"{begin if text[0].isalnum() else ''}{re.escape(text)}{end if text[-1].isalnum() else ''}"


def vacuum(database: Path) -> None:
    """Write an SQLite database anew, without what was deleted from it.

    Raises:
        DataError: another process uses it.
    """
    try:
        with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        raise DataError(f"{database}: cannot be written anew ({error}); end what uses it, and repeat the command") from error


def drop_lines(log: Path, names: Collection[str], records: Collection[str] = ()) -> int:
    """Delete the lines of a JSONL log in which a value is one of the names, and torn ones that hold one; returns how many.

    Args:
        log: The file.
        names: Of users, sessions and traces.
        records: SHA-256 digests of other lines to delete.

    Raises:
        DataError: it is not a file of lines.
    """
    if log.suffix.lower() not in (".jsonl", ".ndjson", ".log", ".json", ".csv", ".tsv"):
        raise DataError(f"{log}: not a plain file of lines; take their records out by hand, or delete the file")
    wanted, searcher, dropped = set(names), Searcher(names), 0

    def kept(data: bytes) -> bytes:
        nonlocal dropped
        lines = data.splitlines(keepends=True)
        stay = [
            line
            for line in lines
            if not _names_one(line, wanted, searcher) and not (records and sha256(line.strip()).hexdigest() in records)
        ]
        dropped = len(lines) - len(stay)
        return b"".join(stay)

    rewrite_whole(log, kept)
    return dropped


def _names_one(line: bytes, wanted: set[str], searcher: Searcher) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return bool(searcher.texts_in_bytes(line))
    return _has(value, wanted)


def _has(value: Any, wanted: set[str]) -> bool:
    if isinstance(value, str):
        return value in wanted
    if isinstance(value, dict):
        return any(_has(entry, wanted) for entry in value.values())
    return isinstance(value, list) and any(_has(entry, wanted) for entry in value)
