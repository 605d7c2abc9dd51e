"""A plain search for texts through files of any kind, apart from that of `tracewheel forget`; used by `lineage_check.py`.

Files are laid open, and the texts searched for as they are: values and token ids of Parquet as text, rows of databases,
archives and compressed files unpacked, base64 decoded, escapes and markup taken out.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import html
import json
import re
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

SHORTEST_TEXT = 24
BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")
TAG = re.compile(r"<[^<>]*>")
Decode = Callable[[list[int]], str]


def texts_of(record: Any) -> set[str]:
    """All strings in a log's record, and within its JSON texts."""
    if isinstance(record, str):
        inner = json.loads(record) if record[:1] in ("{", "[") and _is_json(record) else None
        return {record} | (texts_of(inner) if inner is not None else set())
    values = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    return set().union(*map(texts_of, values)) if values else set()


def needles_of(log: Path, users: Collection[str]) -> dict[str, set[str]]:
    """User to their name, sessions, ids of conversations, and texts of 24 characters or more that no one else's texts hold."""
    found: dict[str, set[str]] = {user: {user} for user in users}
    owners: Counter[str] = Counter()
    every = lines_of(log)
    for user, lines in every.items():
        texts = set().union(*(texts_of(record["messages"]) for record in lines))
        texts = {text for text in texts if len(text) >= SHORTEST_TEXT}
        owners.update(texts)
        if user in found:
            found[user] |= texts | {str(record[name]) for record in lines for name in ("session", "id") if record.get(name)}
    written = {user: "\0".join(set().union(*(texts_of(record["messages"]) for record in every[user]))) for user in every}
    alone = {user: {text for text in texts if owners[text] < 2} for user, texts in found.items()}
    return {
        user: {text for text in texts if not any(text in other for owner, other in written.items() if owner != user)}
        for user, texts in alone.items()
    }


def lines_of(log: Path) -> dict[str, list[dict[str, Any]]]:
    """User to their records, of lines that are records with a user and messages."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in log.read_bytes().splitlines():
        record = json.loads(line) if _is_json(line) else None
        if isinstance(record, dict) and record.get("user") and isinstance(record.get("messages"), list):
            found.setdefault(record["user"], []).append(record)
    return found


def search(roots: Collection[Path], needles: dict[str, set[str]], decode: Decode) -> tuple[dict[Path, set[str]], int, int]:
    """File to the users of whom it holds something; and how many files and bytes were read."""
    found: dict[Path, set[str]] = {}
    files = size = 0
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                files, size = files + 1, size + path.stat().st_size
                text = "\n".join(laid_open(path, decode))
                who = {user for user, texts in needles.items() if any(holds(text, needle) for needle in texts)}
                if who:
                    found[path] = who
    return found, files, size


def holds(text: str, needle: str) -> bool:
    """Whether a text holds another one, not as a part of a longer word."""
    begin = text.find(needle)
    while begin >= 0:
        before, after = text[begin - 1 : begin], text[begin + len(needle) : begin + len(needle) + 1]
        if not (_in_word(needle[0]) and _in_word(before)) and not (_in_word(needle[-1]) and _in_word(after)):
            return True
        begin = text.find(needle, begin + 1)
    return False


def laid_open(path: Path, decode: Decode) -> Iterator[str]:
    """A file's contents as text, in every way in which it may be written."""
    data = path.read_bytes()
    if data[:4] == b"PAR1":
        yield from _parquet(path, decode)
        return
    if data.startswith(b"SQLite format 3\0"):
        yield from _rows(path)
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        import pyarrow

        data = pyarrow.input_stream(str(path), compression="zstd").read()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            data = b"\n".join([name.encode() + b"\n" + archive.read(name) for name in archive.namelist()])
    yield from readings(data)


def readings(data: bytes) -> Iterator[str]:
    """Bytes as text: as they are, without JSON's and HTML's escapes, without markup, and what base64 holds."""
    text = data.decode("utf-8", "replace")
    yield text
    if "\\" in text:
        plain = text
        for _ in range(2):
            plain = plain.replace("\\\\", "\\").replace('\\"', '"').replace("\\n", "\n")
            yield plain
    if "<" in text and "&" in text:
        yield html.unescape(text)
        yield html.unescape(TAG.sub("", text))
    for run in BASE64.findall(data):
        try:
            yield base64.b64decode(run + b"=" * (-len(run) % 4)).decode("utf-8", "replace")
        except binascii.Error:
            continue


def _parquet(path: Path, decode: Decode) -> Iterator[str]:
    import pyarrow.parquet
    import pyarrow.types as types

    table = pyarrow.parquet.read_table(path)
    yield str(table.schema.metadata)
    for column in table.columns:
        is_list = types.is_list(column.type) or types.is_large_list(column.type)
        if is_list and types.is_integer(column.type.value_type):
            yield from (decode(ids) for ids in column.to_pylist() if ids)
        elif not types.is_primitive(column.type):
            yield from readings(
                "\n".join(
                    map(_written, column.unique().to_pylist() if types.is_string(column.type) else column.to_pylist())
                ).encode()
            )


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _rows(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.text_factory = bytes
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f'SELECT * FROM "{table.decode()}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield from readings(value)


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _is_json(text: str | bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
