"""Taking texts out of files that stay: JSON, lines of text, and the record of splits; and lines out of logs.

A conversation goes whole: without its user's name nobody could find the rest of it again.
"""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold
from tracewheel.core.store import PARTIAL, sync
from tracewheel.operations.file_search import Searcher
from tracewheel.traces.compression import is_compressed

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
            _rewrite(path, json.dumps(self.clean(read_json(path)), indent=2).encode() + b"\n")
        elif path.suffix == ".jsonl":
            with hold(path.parent, wait=True):
                _rewrite(path, b"".join(self._lines(path.read_bytes())))
        elif path.suffix in TEXT_SUFFIXES:
            text = self._text(path.read_text(encoding="utf-8", errors="surrogateescape"))
            _rewrite(path, text.encode("utf-8", "surrogateescape"))
        else:
            return False
        return True

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


def _rewrite(path: Path, data: bytes) -> None:
    """Replace a file atomically by one with its mode, which nobody else can read on the way."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_bytes(data)
    partial.chmod(stat.S_IMODE(path.stat().st_mode))
    sync(partial)
    partial.replace(path)


def _whole_word(text: str) -> str:
    begin, end = (r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])")
    return f"{begin if text[0].isalnum() else ''}{re.escape(text)}{end if text[-1].isalnum() else ''}"


def drop_rows(path: Path, column: str, values: Collection[str]) -> int:
    """Delete the rows of a Parquet file whose column has one of the values; schema and metadata stay. Returns how many."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    kept = table.filter(pyarrow.compute.invert(pyarrow.compute.is_in(table[column], pyarrow.array(sorted(values), "string"))))
    if kept.num_rows < table.num_rows:
        partial = path.with_name(f".{path.name}")
        pyarrow.parquet.write_table(kept, partial)
        partial.replace(path)
    return int(table.num_rows - kept.num_rows)


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
    if is_compressed(log) or log.suffix.lower() not in (".jsonl", ".ndjson", ".log", ".json", ".csv", ".tsv"):
        raise DataError(f"{log}: not a plain file of lines; take their records out by hand, or delete the file")
    wanted, searcher, kept, dropped = set(names), Searcher(names), [], 0
    with hold(log.parent, wait=True):  # against a server that writes into it (`ConversationLog`)
        for line in log.read_bytes().splitlines(keepends=True):
            if _names_one(line, wanted, searcher) or (records and sha256(line.strip()).hexdigest() in records):
                dropped += 1
            else:
                kept.append(line)
        if dropped:
            _rewrite(log, b"".join(kept))
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
