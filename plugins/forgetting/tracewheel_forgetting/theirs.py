"""Whose records are to be forgotten, and what is theirs: traces, records in quarantine, and texts that nobody else has.

A text that others have logged too, such as a common request, is not theirs alone: tasks made of it stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel import ConfigError, DataError, Redactor, read_batches, texts_of
from tracewheel_forgetting.file_search import Searcher

# Shorter texts say little of anybody; what is longer is found by its beginning.
SHORTEST_TEXT, LONGEST_TEXT = 24, 400
MOST_TEXTS = 4_000
ROWS = 500
NAMES = ("user", "session", "id")
SAID_OF = {"id": "trace", "session": "session"}  # how an outcome names a conversation: what it names
COLUMNS = [*NAMES, "messages", "environment", "source_file", "source_line", "info"]


@dataclass(frozen=True)
class Wanted:
    """Whose records are to be forgotten: users, sessions and traces, by their names in the logs or in the stored traces."""

    users: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    traces: frozenset[str] = frozenset()

    @classmethod
    def of(cls, users: Collection[str], sessions: Collection[str], traces: Collection[str], redaction: Any) -> Wanted:
        """The names given, and those that redaction (`ingest.redaction` of the profile) stores instead of them.

        Raises:
            ConfigError: nobody is named.
        """
        if not any((*users, *sessions, *traces)):
            raise ConfigError("nobody is named: give --user, --session or --trace")
        redactor = Redactor(redaction)
        return cls(
            frozenset(name for user in users for name in (user, redactor.identity("user", user)) if name),
            frozenset(name for session in sessions for name in (session, redactor.identity("session", session)) if name),
            frozenset(name for trace in traces for name in (trace, redactor.identity("id", trace))),
        )

    @property
    def names(self) -> list[str]:
        """All names."""
        return sorted(self.users | self.sessions | self.traces)

    @property
    def who(self) -> frozenset[tuple[str, str]]:
        """All names with what they name."""
        kinds = (("user", self.users), ("session", self.sessions), ("trace", self.traces))
        return frozenset((kind, name) for kind, names in kinds for name in names)


class Said(NamedTuple):
    """An outcome that was said later: how it names its conversation, and where it was read."""

    by: str
    key: str
    file: str
    line: int


@dataclass(frozen=True)
class TheirTrace:
    """A stored trace of theirs, and where the log has it."""

    id: str
    user: str | None
    session: str | None
    file: str
    line: int


@dataclass
class Theirs:
    """What is theirs in ingested logs.

    Attributes:
        traces: By id.
        records: Records in quarantine that name them.
        responses: Ids of the responses in them, where an outcome may name one.
        outcomes: What was said later of their conversations.
        texts: Texts of their traces that no other trace has.
        folders: Of the folders that were looked at, those that hold something of theirs.
    """

    traces: dict[str, TheirTrace] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    responses: set[str] = field(default_factory=set)
    outcomes: set[Said] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.traces or self.records or self.outcomes)

    def sessions(self, wanted: Wanted) -> set[str]:
        """Sessions of the users who are wanted."""
        return {trace.session for trace in self.traces.values() if trace.session and trace.user in wanted.users}

    @property
    def names(self) -> set[str]:
        """Names of their traces, and those by which outcomes name them."""
        return {*self.traces, *(one.key for one in self.outcomes)}

    def needles(self, wanted: Wanted) -> list[str]:
        """What to search files for: their names, the names of their traces and sessions, and their texts.

        A session's own name is theirs if it was asked for, or if its user was.
        """
        return [*wanted.names, *sorted((self.sessions(wanted) | self.names) - set(wanted.names)), *self.texts]

    def places(self) -> list[tuple[str, int]]:
        """File and line of each of their records, in order."""
        records = ((record["file"], record["line"]) for record in self.records)
        said = ((one.file, one.line) for one in self.outcomes)
        return sorted({*((trace.file, trace.line) for trace in self.traces.values()), *records, *said})


def find_theirs(folders: Iterable[Path], wanted: Wanted) -> Theirs:
    """What is theirs in folders that ingest wrote.

    Args:
        folders: Outputs of ingest; parts that they share are read once.
        wanted: Whose records.

    Raises:
        DataError: a part cannot be read.
    """
    theirs, texts, seen = Theirs(), set[str](), dict[tuple[int, int], bool]()
    others: list[Path] = []
    for folder in folders:
        has_some = False
        for part in sorted((folder / "traces.parquet").glob("*.parquet")):
            known = _inode(part)
            if known not in seen:
                others.append(part)
                seen[known] = _take_part(part, wanted, theirs, texts)
            has_some |= seen[known]
        has_some |= _take_quarantine(folder / "quarantine.jsonl", wanted, theirs)
        has_some |= _take_outcomes(folder / "outcomes.jsonl", wanted, theirs)
        if has_some:
            theirs.folders.append(folder)
    for part in others if texts else []:
        texts -= _texts_of_others(part, wanted, texts)
    theirs.texts = sorted(texts, key=lambda text: (-len(text), text))[:MOST_TEXTS]
    return theirs


def _inode(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _is_theirs(row: dict[str, Any], wanted: Wanted) -> bool:
    return row["user"] in wanted.users or row["session"] in wanted.sessions or row["id"] in wanted.traces


def _take_part(part: Path, wanted: Wanted, theirs: Theirs, texts: set[str]) -> bool:
    found = False
    for row in _rows(part):
        if _is_theirs(row, wanted):
            found = True
            theirs.traces[row["id"]] = TheirTrace(
                row["id"], row["user"], row["session"], row["source_file"], int(row["source_line"])
            )
            theirs.responses.update(json.loads(row["info"]).get("responses") or ())
            texts.update(_texts(row))
    return found


def _take_outcomes(file: Path, wanted: Wanted, theirs: Theirs) -> bool:
    """What was said of their conversations, by their names and by the ids of their responses."""
    names = wanted.sessions | wanted.traces | theirs.sessions(wanted) | theirs.traces.keys() | theirs.responses
    found = {one for one in _said(file) if one.key in names}
    theirs.outcomes |= found
    return bool(found)


def _said(file: Path) -> Iterator[Said]:
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        try:
            record = json.loads(line)
            yield Said(record["by"], record["key"], record["file"], record["line"])
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{file}: is no list of outcomes ({error}); ingest everything again with --full") from error


def _texts_of_others(part: Path, wanted: Wanted, texts: Collection[str]) -> set[str]:
    return {text for row in _rows(part) if not _is_theirs(row, wanted) for text in _texts(row) if text in texts}


def _rows(part: Path) -> Iterator[dict[str, Any]]:
    for batch in read_batches(part, ROWS, COLUMNS):
        yield from batch.to_pylist()


def _texts(row: dict[str, Any]) -> Iterator[str]:
    """The texts of a trace that are long enough to be somebody's."""
    for name in ("messages", "environment"):
        if row[name]:
            for text in texts_of(json.loads(row[name])):
                if len(text) >= SHORTEST_TEXT:
                    yield text[:LONGEST_TEXT]


def _take_quarantine(file: Path, wanted: Wanted, theirs: Theirs) -> bool:
    """Records in quarantine that name them. One that two of the names' owners share counts as theirs: nobody can read it."""
    if not file.is_file() or not file.stat().st_size:
        return False
    searcher, found = Searcher(wanted.names), False
    with file.open("rb") as stream:
        for line in stream:
            if searcher.texts_in_bytes(line):
                record = json.loads(line)
                found = True
                if record not in theirs.records:
                    theirs.records.append(record)
    return found
