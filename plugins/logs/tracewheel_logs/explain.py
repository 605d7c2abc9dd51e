"""One record as it was read, beside the original: what became of each of its fields, and what would be redacted."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracewheel import DataError, Quarantined, Redactor, SecretError, Trace, records_of

if TYPE_CHECKING:
    from tracewheel import IngestConfig

FIELDS = ("id", "task", "session", "user", "created", "model", "outcome", "environment", "tokens")
REWARDS = re.compile("reward|score|success|outcome|pass|resolved|correct|total|value|grade|solved|^ok$", re.IGNORECASE)
SHORTEST = 4  # a shorter text occurs in others by accident


def explain_record(config: IngestConfig, path: Path, *, record: int | None = None, line: int | None = None) -> dict[str, Any]:
    """Read one record and say what became of it. Nothing is written.

    Args:
        config: How logs are read and redacted; its paths are not used.
        path: The log file.
        record: Which record of the file, from 1; default the first.
        line: The line of the record instead; of a record that takes several lines, any of them.

    Returns:
        `file`, `number` (from 1) and `line` of the record; `original`, its JSON values, one for each line or part, texts where
        they are no JSON; `trace`, what would be stored, redacted, with its `format` and whether it says what was `asked`; None
        for a record in quarantine, which has `reason`, `detail` and `advice`; `redacted`, the places that would be, by kind;
        `read`, where the trace's fields were in the record; `unread`, what is not in the trace, an example by path.

    Raises:
        DataError: there is no such file or record.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such log file")
    found: tuple[int, Trace | Quarantined, list[bytes]] | None = None
    try:
        for number, (item, raws) in enumerate(records_of(config, path), start=1):
            begins = _line(item)
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
    number, item, raws = found
    original = [_parsed(raw) for raw in raws]
    says: dict[str, Any] = {"reason": "", "detail": "", "advice": "", "redacted": {}, "read": {}, "unread": {}, "trace": None}
    says |= {"file": str(path), "number": number, "line": _line(item), "original": original, "format": None, "asked": True}
    if isinstance(item, Quarantined):
        return says | {"reason": item.reason, "detail": item.detail, "advice": item.advice}
    try:
        redacted, counts = Redactor(config.redaction).trace(item)
    except SecretError as error:
        return says | {"reason": "not redacted", "detail": str(error)}
    fates = _Fates(item)
    for value in original:
        fates.follow(value, "")
    asked = any(message["role"] == "user" for message in item.messages) or bool((item.environment or {}).get("prompt"))
    says |= {"trace": asdict(redacted), "format": redacted.format, "asked": asked}
    return says | {"redacted": dict(counts), "read": fates.read, "unread": fates.unread}


def _line(item: Trace | Quarantined) -> int:
    return item.line if isinstance(item, Quarantined) else item.source_line


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
