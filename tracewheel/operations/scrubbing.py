"""Taking texts out of files that stay: JSON, lines of text, and the record of splits; and lines out of logs."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import write_whole
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
        self._expression = re.compile("|".join(map(_whole_word, longest_first))) if longest_first else None

    def scrub(self, path: Path) -> bool:
        """Take the texts out of a file; False for one of a kind that is not understood, which is unchanged.

        Raises:
            DataError: a JSON file is damaged.
        """
        if path.suffix == ".json":
            write_whole(path, json.dumps(self.clean(read_json(path)), indent=2) + "\n")
        elif path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()
            write_whole(path, "".join(json.dumps(self.clean(json.loads(line))) + "\n" for line in lines if line.strip()))
        elif path.suffix in TEXT_SUFFIXES:
            write_whole(path, self._text(path.read_text(encoding="utf-8", errors="surrogateescape")))
        else:
            return False
        return True

    def clean(self, value: Any) -> Any:
        """JSON types without the texts."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.clean(entry) for entry in value]
        if isinstance(value, dict):
            return {self._text(key): self.clean(entry) for key, entry in value.items()}
        return value

    def _text(self, text: str) -> str:
        if text in self._known:
            return GONE
        return self._expression.sub(GONE, text) if self._expression else text


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


def drop_lines(log: Path, names: Collection[str], records: Collection[bytes] = ()) -> int:
    """Delete the lines of a JSONL log in which a value is one of the names; returns how many.

    Args:
        log: The file.
        names: Of users, sessions and traces.
        records: Lines that are no JSON, to delete too.

    Raises:
        DataError: it is not a file of lines.
    """
    if is_compressed(log) or log.suffix.lower() not in (".jsonl", ".ndjson", ".log", ".json"):
        raise DataError(f"{log}: not a plain file of lines; take their records out by hand, or delete the file")
    wanted, kept, dropped = set(names), [], 0
    for line in log.read_bytes().splitlines(keepends=True):
        if _names_one(line, wanted) or line.strip() in records:
            dropped += 1
        else:
            kept.append(line)
    if dropped:
        partial = log.with_name(f".{log.name}.partial")
        partial.write_bytes(b"".join(kept))
        partial.chmod(log.stat().st_mode)
        partial.replace(log)
    return dropped


def _names_one(line: bytes, wanted: set[str]) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return _has(value, wanted)


def _has(value: Any, wanted: set[str]) -> bool:
    if isinstance(value, str):
        return value in wanted
    if isinstance(value, dict):
        return any(_has(entry, wanted) for entry in value.values())
    return isinstance(value, list) and any(_has(entry, wanted) for entry in value)
