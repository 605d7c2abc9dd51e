"""One record as it was read, beside the original: what became of each of its fields, and what would be redacted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError, SecretError
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import ADVICE, Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import pieces_of
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.spool import Spool

REMEMBERED = 64 << 20  # bytes of a record's lines that are held to be shown
FIELDS = ("id", "task", "session", "user", "created", "model", "outcome", "environment", "tokens")
REWARDS = re.compile("reward|score|success|outcome|pass|resolved|correct|total|value|grade|solved|^ok$", re.IGNORECASE)
SHORTEST = 4  # a shorter text occurs in others by accident


@dataclass(frozen=True)
class Explained:
    """A record and what was read of it.

    Attributes:
        file: The log file.
        number: Place of the record among those of the file, from 1.
        line: Where it begins.
        original: The record's JSON values, one for each line or part; texts where they are no JSON.
        trace: What would be stored, already redacted; None for a quarantined record.
        reason: Why it is quarantined, or "".
        detail: What exactly is wrong.
        advice: What to do about it.
        redacted: How many places would be redacted, by kind.
        read: Where the fields of the trace were in the record, by field.
        unread: What of the record is not in the trace: an example by path.
    """

    file: str
    number: int
    line: int
    original: list[Any]
    trace: Trace | None = None
    reason: str = ""
    detail: str = ""
    advice: str = ""
    redacted: dict[str, int] = field(default_factory=dict)
    read: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        names = ("file", "number", "line", "reason", "detail", "advice", "redacted", "read", "unread", "original")
        record = {name: getattr(self, name) for name in names}
        return {**record, "format": self.trace and self.trace.format, "trace": self.trace and asdict(self.trace)}


def explain_record(config: IngestConfig, path: Path, *, record: int | None = None, line: int | None = None) -> Explained:
    """Read one record and say what became of it. Nothing is written.

    Args:
        config: How logs are read and redacted; its paths are not used.
        path: The log file.
        record: Which record of the file, from 1; default the first.
        line: The line of the record instead; of a record that takes several lines, any of them.

    Raises:
        DataError: there is no such file or record.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such log file")
    found: tuple[int, Trace | Quarantined, list[bytes]] | None = None
    try:
        for number, (item, raws) in enumerate(_items(config, path), start=1):
            begins = item.line if isinstance(item, Quarantined) else item.source_line
            if line is None and number == (record or 1):
                found = number, item, raws
                break
            if line is not None and begins <= line and (found is None or begins > _line(found[1])):
                found = number, item, raws
            if line is not None and begins == line:
                break
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if found is None:
        which = f"line {line}" if line is not None else f"record {record or 1}"
        raise DataError(f"{path}: no {which}; records count from 1")
    return _explained(config, path, *found)


def read_first(config: IngestConfig, path: Path, most: int) -> Iterator[Trace | Quarantined]:
    """The records in about the first `most` bytes of a log file as they are read; nothing is redacted or written."""
    with Spool() as spool:
        reader = LogReader(config.format, spool, own_readers(config.readers), config.fields)
        yield from reader.read(_within(pieces_of(path), most), path.name)
        yield from (item for _, item in reader.spooled())


def _within(pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        most -= len(piece.raw)
        if most <= 0:
            return


def _line(item: Trace | Quarantined) -> int:
    return item.line if isinstance(item, Quarantined) else item.source_line


def _items(config: IngestConfig, path: Path) -> Iterator[tuple[Trace | Quarantined, list[bytes]]]:
    """The records of a file, each with its bytes."""
    with Spool() as spool:
        reader = LogReader(config.format, spool, own_readers(config.readers), config.fields)
        memory = _Memory()
        for item in reader.read(memory.of(pieces_of(path)), path.name):
            yield item, [item.raw] if isinstance(item, Quarantined) else memory.take(item.source_line)
        for group, item in reader.spooled():
            if isinstance(item, Quarantined):
                yield item, [item.raw]
            else:
                yield item, group.raws if group else _at_line(path, item.source_line)


class _Memory:
    """The pieces that a reader has taken since its last record."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._size = 0

    def of(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self._size += len(piece.raw)
            if self._size <= REMEMBERED:
                self._pieces.append(piece)
            yield piece

    def take(self, line: int) -> list[bytes]:
        taken, self._pieces, self._size = self._pieces, [], 0
        return [piece.raw for piece in taken if piece.line >= line] or [piece.raw for piece in taken]


def _at_line(path: Path, line: int) -> list[bytes]:
    return [piece.raw for piece in pieces_of(path) if piece.line == line][:1]


def _explained(config: IngestConfig, path: Path, number: int, item: Trace | Quarantined, raws: list[bytes]) -> Explained:
    original = [_parsed(raw) for raw in raws]
    if isinstance(item, Quarantined):
        advice = ADVICE.get(item.reason, "")
        return Explained(str(path), number, item.line, original, None, item.reason, item.detail, advice)
    fates = _Fates(item)
    for value in original:
        fates.follow(value, "")
    try:
        redacted, counts = Redactor(config.redaction).trace(item)
    except SecretError as error:
        return Explained(str(path), number, item.source_line, original, None, "not redacted", str(error))
    return Explained(
        str(path), number, item.source_line, original, redacted, redacted=dict(counts), read=fates.read, unread=fates.unread
    )


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "backslashreplace")


class _Fates:
    """Finds the values of a record in the trace: by equality, as words in its messages, as times, or inside JSON text."""

    def __init__(self, trace: Trace) -> None:
        self.read: dict[str, list[str]] = {}
        self.unread: dict[str, str] = {}
        self._fields = {name: _scalars(getattr(trace, name)) for name in FIELDS}
        others = {"messages": trace.messages, "tools": trace.tools, "info": trace.info}
        self._others = {name: _scalars(value) for name, value in others.items()}
        self._words = "\n".join(value for value in self._others["messages"] if isinstance(value, str))
        self._created = _moment(trace.created)

    def follow(self, value: Any, path: str) -> None:
        """Note the fate of each value in a part of the record."""
        if isinstance(value, dict):
            for name, inner in value.items():
                self.follow(inner, f"{path}.{name}" if path else str(name))
        elif isinstance(value, list):
            for inner in value:
                self.follow(inner, f"{path}[]")
        elif value is not None and value != "":
            self._note(value, path)

    def _note(self, value: Any, path: str) -> None:
        homes = [name for name, scalars in self._fields.items() if value in scalars]
        told = homes if value not in (0, 1) or REWARDS.search(path.rpartition(".")[2]) else []  # they are everywhere
        if self._created is not None and isinstance(value, str | int | float) and _moment(value) == self._created:
            homes.append("created")
            told = homes
        for name in dict.fromkeys(told):
            places = self.read.setdefault(name, [])
            if path not in places:
                places.append(path)
        if not homes and not self._is_known(value):
            self.unread.setdefault(path, value if isinstance(value, str) else json.dumps(value))

    def _is_known(self, value: Any) -> bool:
        if any(value in scalars for scalars in self._others.values()):
            return True
        if isinstance(value, str):
            if len(value) >= SHORTEST and (value in self._words or value.strip() in self._words):
                return True
            inner = _inner(value)
            return inner is not None and all(self._is_known(one) or _in(one, self._fields) for one in _scalars(inner))
        return False


def _in(value: Any, fields: dict[str, set[Any]]) -> bool:
    return any(value in scalars for scalars in fields.values())


def _inner(text: str) -> Any:
    """The object or list that a text is the JSON of; None where it is none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _scalars(value: Any) -> set[Any]:
    """All texts and numbers in a value, those inside JSON text too."""
    found: set[Any] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif one is not None and one != "":
            found.add(one)
            if isinstance(one, str) and (inner := _inner(one)) is not None:
                waiting.append(inner)
    return found


def _moment(value: Any) -> datetime | None:
    """A time as ISO text or as seconds, milliseconds or nanoseconds since 1970; None where it is none."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 1e8:
            scale = next(scale for scale in (1, 1e3, 1e6, 1e9) if value / scale < 1e11)
            return datetime.fromtimestamp(value / scale, UTC)
    except (ValueError, OverflowError, OSError, StopIteration):
        return None
    return None
