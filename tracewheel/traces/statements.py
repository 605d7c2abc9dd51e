"""What is said of a conversation apart from it: an outcome that came later, from a log, a file of outcomes or `serve`.

A statement names the conversation by an id (its own, or a response's) or by its session, and has a kind:

- `verified`: what a program or the log itself found out;
- `label`: a person's verdict; `thumb`: a user's thumb;
- `judge`: a model's opinion; `implicit`: a guess from what the user did next. Neither of the two is ever an outcome.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tracewheel.config.ingest import OUTCOME_KINDS
from tracewheel.core.errors import DataError
from tracewheel.core.paths import JsonPath
from tracewheel.traces.compression import ByteStream, is_compressed
from tracewheel.traces.log_file import BYTE_ORDER_MARK, LogFile
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.fields import NAMES, outcome_value, text_field, utc_time
from tracewheel.traces.readers.records import parse_piece

TYPE = "tracewheel.outcome"  # the `type` of a line of a log that is no conversation but says how one ended
BY_ID, BY_SESSION = "id", "session"
VERIFIED, LABEL, THUMB = "verified", "label", "thumb"
COLUMNS = {
    BY_ID: ("trace_id", "response_id", "message_id", "completion_id", "run_id", "trace"),
    BY_SESSION: NAMES["session"],
    "value": ("value", *NAMES["outcome"], "rating", "thumb", "feedback", "label"),
    "kind": ("kind",),
    "said": ("said", "said_at", "at", *NAMES["created"]),
}
THUMBS = {
    **dict.fromkeys(("up", "thumbs_up", "thumbsup", "like", "positive", "good", "👍"), 1.0),
    **dict.fromkeys(("down", "thumbs_down", "thumbsdown", "dislike", "negative", "bad", "👎"), 0.0),
}
PREFIX = "served"  # of the ids of conversations with `serve`
# A response of `serve` has its conversation's id and the number of the turn; each vendor's dialect puts a word before it.
OF_TURN = re.compile(rf"(?:chatcmpl-|resp_|msg_)?({PREFIX}-[0-9a-f]+-\d+)-\d+")
TABLES = {".csv": ",", ".tsv": "\t"}


class Statement(NamedTuple):
    """An outcome as somebody stated it.

    Attributes:
        by: What `key` is: `BY_ID` or `BY_SESSION`.
        key: Of which conversation.
        value: The outcome.
        kind: One of `OUTCOME_KINDS`.
        said: When, as ISO 8601 in UTC; None where nobody wrote it down.
        file: Where it was read.
        line: The line there.
        client: Whose session it names, of those that `serve` tells apart; None where it is anyone's.
    """

    by: str
    key: str
    value: float
    kind: str
    said: str | None
    file: str
    line: int
    client: str | None = None


def conversation_of(name: str) -> str:
    """The id of the conversation that a response of `serve` belongs to; any other id as it is."""
    turn = OF_TURN.fullmatch(name)
    return turn[1] if turn else name


def statement_of(
    record: Mapping[str, Any], file: str, line: int, fields: Mapping[str, str] | None = None, kind: str = LABEL
) -> Statement:
    """Read a statement.

    Args:
        record: The row or object.
        file: Name of the file.
        line: Its line there.
        fields: Where its parts are, as in `ingest.outcomes.fields`; others are found by the names in `COLUMNS`.
        kind: Its kind where the record names none.

    Raises:
        InvalidRecord: it names no conversation, has no value, or is of no kind that is known.
    """
    found = {name: _part(record, name, fields or {}) for name in COLUMNS}
    if found[BY_ID] is None and found[BY_SESSION] is None and BY_ID not in (fields or {}):
        found[BY_ID] = record.get("id")  # beside another name it is the row's own
    by = BY_SESSION if found[BY_ID] is None else BY_ID
    name = text_field(found, by)
    if not name:
        raise InvalidRecord(
            "field unreadable", f"it names no conversation: by id, {', '.join((*COLUMNS[BY_ID], *COLUMNS[BY_SESSION]))}"
        )
    raw = found["value"]
    value = THUMBS.get(raw.strip().lower()) if isinstance(raw, str) else None
    value = outcome_value(raw) if value is None else value
    if value is None:
        raise InvalidRecord("reward is not a number", f"the outcome is {raw!r:.40}: a number, true or false, or a word as pass")
    named = text_field(found, "kind") or kind
    if named not in OUTCOME_KINDS:
        raise InvalidRecord("field unreadable", f"'kind' is {named!r:.40}; known: {', '.join(OUTCOME_KINDS)}")
    said = found["said"]
    if said not in (None, "") and utc_time(said) is None:
        raise InvalidRecord("field unreadable", f"the time is {said!r:.40}: ISO 8601 is read")
    client = record.get("client") if record.get("type") == TYPE else None
    whose = client if isinstance(client, str) else None
    return Statement(by, conversation_of(name) if by == BY_ID else name, value, named, utc_time(said), file, line, whose)


def _part(record: Mapping[str, Any], name: str, fields: Mapping[str, str]) -> Any:
    if (path := fields.get(name)) is not None:
        return path[1:] if path.startswith("=") else JsonPath(path).get(record)
    plain = {
        str(key).strip().lower().replace("-", "_").replace(" ", "_"): value
        for key, value in record.items()
        if value not in (None, "")
    }
    plain |= {key.replace("_", ""): value for key, value in plain.items()}
    return next((plain[key] for column in COLUMNS[name] for key in (column, column.replace("_", "")) if key in plain), None)


class OutcomeFile(NamedTuple):
    """What a file of outcomes says.

    Attributes:
        statements: In the order of the file; of several without a time on one conversation and of one kind, the last.
        unreadable: `file:line: why` of each other row.
    """

    statements: list[Statement]
    unreadable: list[str]


def read_outcomes(path: Path, name: str, fields: Mapping[str, str]) -> OutcomeFile:
    """Read a file of outcomes: CSV with a header, JSON lines or a JSON list, also compressed.

    Args:
        path: The file.
        name: Its name in statements.
        fields: As `ingest.outcomes.fields`.

    Raises:
        DataError: it cannot be read, or none of its rows can.
    """
    statements: dict[Any, Statement] = {}
    unreadable: list[str] = []
    rows = 0
    try:
        for line, row in _table(path) if _suffix(path) in TABLES else _values(path):
            rows += 1
            try:
                if isinstance(row, InvalidRecord):
                    raise row
                one = statement_of(row, name, line, fields)
            except InvalidRecord as error:
                unreadable.append(f"{name}:{line}: {error.detail}")
                continue
            # A file that is read again says the same again, so what it says must not depend on what it said before that.
            key = (one.by, one.key, one.kind, one.said, one.value) if one.said else (one.by, one.key, one.kind)
            statements.pop(key, None)
            statements[key] = one
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if rows and not statements:
        raise DataError(
            f"{path}: none of its {rows} rows is an outcome ({unreadable[0].removeprefix(name + ':')}); say where its parts "
            "are with ingest.outcomes.fields, as in {id: conversation, value: rating, kind: =thumb, said: at}"
        )
    return OutcomeFile(list(statements.values()), unreadable)


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if is_compressed(path) else path).suffix.lower()


def _table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table with a header, and the lines where they end."""
    stream = ByteStream(path)
    try:
        blocks = iter(lambda: stream.read(1 << 20), b"")
        text = b"".join(blocks).removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace")
    finally:
        stream.close()
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=TABLES[_suffix(path)])
    try:
        for row in reader:
            yield reader.line_num, {name: value for name, value in row.items() if isinstance(name, str)}
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is no table: {error}") from error


def _values(path: Path) -> Iterator[tuple[int, dict[str, Any] | InvalidRecord]]:
    """The objects of a file of JSON, and why others are none."""
    for piece in LogFile(path).pieces():
        try:
            value = parse_piece(piece)
        except InvalidRecord as error:
            yield piece.line, error
            continue
        is_object = isinstance(value, dict)
        yield piece.line, value if is_object else InvalidRecord("not an object", f"it is a {type(value).__name__}")


def line_of(one: Statement) -> dict[str, Any]:
    """A statement as a line of a log."""
    client = {"client": one.client} if one.client else {}
    return {"type": TYPE, one.by: one.key, "value": one.value, "kind": one.kind, "said": one.said, **client}


def write_statements(file: Path, statements: list[Statement]) -> None:
    """Write statements as JSON lines; no file where there are none."""
    if statements:
        file.write_bytes(b"".join(orjson.dumps(one._asdict(), option=orjson.OPT_APPEND_NEWLINE) for one in statements))


def stored_statements(file: Path) -> list[Statement]:
    """The statements that `write_statements` wrote.

    Raises:
        DataError: the file is damaged.
    """
    if not file.is_file():
        return []
    try:
        with file.open("rb") as lines:
            return [Statement(**orjson.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise DataError(f"{file}: is no list of outcomes ({error}); ingest everything again with --full") from error
