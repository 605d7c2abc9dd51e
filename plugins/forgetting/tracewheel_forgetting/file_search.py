"""Search for texts through all files of some folders, whatever their form: the proof that something is gone.

Read are plain files of any kind, `.gz` and `.zst`, members of ZIP archives (torch's files are such), the values of Parquet
files, and of SQLite databases both the values and the bytes of the file, where deleted rows remain until it is vacuumed. A
text is found as it is, as JSON writes it (once and twice), in HTML, in URLs and in base64.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import sqlite3
import zipfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tracewheel import ByteStream, Triggers, in_base64, most_expanded, read_foreign_batches

CHUNK = 4 << 20
EXPANSION = 1_000_000  # times the size of a file: what was read once, under whatever setting, is searched
COMPRESSED = (".gz", ".zst", ".zstd")
SQLITE = b"SQLite format 3\0"
# A shorter text is found only where it is a whole value, or quoted.
SHORTEST = 5
ROWS = 2_000


@dataclass(frozen=True)
class Found:
    """A file that holds something.

    Attributes:
        path: The file.
        texts: Which of the texts, by their places in the list that was searched for.
    """

    path: Path
    texts: tuple[int, ...]


@dataclass
class Search:
    """What a search has read and found."""

    files: int = 0
    bytes: int = 0
    found: list[Found] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class Searcher:
    """Searches files for texts.

    Args:
        texts: What to search for; empty ones are ignored. A name is found as a whole word: `user-1` is not in `user-12`.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        sought = [(at, expression) for at, text in enumerate(self._texts) if text for expression in _expressions(text)]
        self._owners = [at for at, _ in sought]
        self._triggers = Triggers([expression for _, expression in sought])
        self._overlap = max((len(expression) for _, expression in sought), default=0)

    def search(self, roots: Iterable[Path], without: Collection[Path] = ()) -> Search:
        """Search folders and files, but for some folders; links are not followed."""
        done = Search()
        for root in roots:
            for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
                if not path.is_file() or path.is_symlink() or any(folder in path.parents for folder in without):
                    continue
                done.files += 1
                done.bytes += path.stat().st_size
                try:
                    texts = self.texts_in(path)
                except (OSError, ValueError, sqlite3.Error) as error:
                    done.unread.append(f"{path}: {error}")
                    continue
                if texts:
                    done.found.append(Found(path, tuple(sorted(texts))))
        return done

    def texts_in(self, path: Path) -> set[int]:
        """Which texts a file holds, by their places in the list.

        Raises:
            OSError, ValueError, sqlite3.Error: the file cannot be read as what it is.
        """
        found: set[int] = set()
        for piece in _pieces(path, self._overlap):
            found |= self.texts_in_bytes(piece)
            if len(found) == len(self._texts):
                break
        return found

    def places_in(self, path: Path) -> list[str]:
        """Where a file holds something: `file:line` for each line of a plain file of JSON lines, else the file."""
        if path.suffix != ".jsonl":
            return [str(path)]
        with path.open("rb") as lines:
            return [f"{path}:{number}" for number, line in enumerate(lines, 1) if self.texts_in_bytes(line)] or [str(path)]

    def texts_in_bytes(self, data: bytes) -> set[int]:
        """Which texts some bytes hold, by their places in the list."""
        return {self._owners[at] for at in self._triggers.fired(data)} if self._triggers.fire(data) else set()


def _expressions(text: str) -> list[str]:
    """Expressions that match the bytes of a text, however it is written."""
    once = _in_json([text])
    forms = [text, *once, *_in_json(once), html.escape(text), *map(html.escape, once), quote(text), quote(text, safe="")]
    forms = list(dict.fromkeys(forms))
    if len(text) < SHORTEST:
        return [re.escape(_latin(f"{mark}{form}{mark}")) for form in forms for mark in ('"', "'", "\0")]
    encoded = in_base64(text) if len(text) >= 2 * SHORTEST else []
    return [*map(_whole_word, forms), *map(re.escape, encoded)]


def _in_json(texts: Iterable[str]) -> list[str]:
    return [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts for ascii_only in (False, True)]


def _latin(text: str) -> str:
    """Each byte of a text as a letter, as `Triggers` takes it."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _whole_word(form: str) -> str:
    raw = _latin(form)
    begin, end = (r"\b" if re.match(r"[A-Za-z0-9_]", letter) else "" for letter in (raw[0], raw[-1]))
    return f"{begin}{re.escape(raw)}{end}"


def _pieces(path: Path, overlap: int) -> Iterator[bytes]:
    """The contents of a file, in pieces."""
    with path.open("rb") as file:
        head = file.read(len(SQLITE))
    if path.suffix == ".parquet" or head[:4] == b"PAR1":
        yield from _parquet(path)
    elif head == SQLITE:
        yield from _raw(path, overlap)
        yield from _database(path)
    elif zipfile.is_zipfile(path):
        yield from _archive(path)
    else:
        yield from _raw(path, overlap)


def _raw(path: Path, overlap: int) -> Iterator[bytes]:
    stream, rest = ByteStream(path, expansion=EXPANSION), b""
    while piece := stream.read(CHUNK):
        yield rest + piece
        rest = piece[-overlap:]
    if stream.damage:
        raise ValueError(stream.damage)
    if path.suffix.lower() in COMPRESSED:  # its name and comment lie outside
        yield path.read_bytes()[:CHUNK]


def _archive(path: Path) -> Iterator[bytes]:
    most = most_expanded(path)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if archive.getinfo(name).file_size > most:
                raise ValueError(f"its member {name} is larger than {most} bytes")
            with contextlib.suppress(RuntimeError):  # encrypted: nothing of ours is
                yield name.encode("utf-8", "surrogatepass") + b"\n" + archive.read(name)


def _parquet(path: Path) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.parquet

    try:
        yield str(pyarrow.parquet.read_schema(path).metadata).encode()
        for batch in read_foreign_batches(path, ROWS, EXPANSION):
            for column in batch.columns:
                for values in _leaves(column):
                    yield from _joined(values.to_pylist())
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from error


def _leaves(column: Any) -> Iterator[Any]:
    """The arrays of text and bytes within a column."""
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind):
        yield from _leaves(column.dictionary)
    elif types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        if types.is_map(kind):
            yield from _leaves(column.keys)
            yield from _leaves(column.items)
        else:
            yield from _leaves(column.flatten())
    elif any(is_of(kind) for is_of in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)):
        yield column


def _database(path: Path) -> Iterator[bytes]:
    address = f"file:{quote(str(path))}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30)) as database:
        database.text_factory = bytes
        tables = [row[0].decode() for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table.startswith("sqlite_"):
                continue
            rows = database.execute(f'SELECT * FROM "{table}"')
            while some := rows.fetchmany(ROWS):
                yield from _joined(value for row in some for value in row)


def _joined(values: Iterable[Any]) -> Iterator[bytes]:
    """Values as bytes, one beside the other, each between two NULs."""
    kept, size = [], 0
    for value in values:
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes) and value:
            kept.append(value)
            size += len(value)
            if size > CHUNK:
                yield b"\0" + b"\0\0".join(kept) + b"\0"
                kept, size = [], 0
    if kept:
        yield b"\0" + b"\0\0".join(kept) + b"\0"
