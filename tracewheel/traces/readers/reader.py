"""The interface of readers. Each format has a file with its `READERS`; `log_reader` chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from tracewheel.core.types import Trace


class Place(NamedTuple):
    """Where a record begins: the file's stored name, and the line, counted from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class RawTrace:
    """What a reader found in a record, before its messages are checked. None, or an empty list, where the log has nothing."""

    messages: list[Any]
    id: str | None = None
    tools: list[dict[str, Any]] | None = None
    environment: dict[str, Any] | None = None
    session: str | None = None
    user: str | None = None
    created: str | None = None
    model: str | None = None
    outcome: float | None = None
    task: str | None = None
    tokens: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)


class Signs(IntEnum):
    """How specific the signs are by which a reader recognises a record. Of several that do, the most specific reads it."""

    GENERAL = 1
    """A key that many formats have, such as `messages`."""
    SHAPE = 2
    """Keys, types or blocks that only this format has together."""
    NAMED = 3
    """The record names its format, or has all keys of a schema."""
    OWN = 4
    """The user's own reader (`ingest.readers`)."""


class SessionLine(NamedTuple):
    """A line of a session's file: its number from 1, its first byte and its value."""

    line: int
    offset: int
    value: dict[str, Any]


class Part(NamedTuple):
    """What becomes one trace, of a record that holds several; `read` takes `value`.

    `line` is where it begins, or None where that is not known; `original` is its JSON as logged, for the quarantine.
    """

    value: Any
    line: int | None
    original: Any


@dataclass(frozen=True)
class Reader:
    """Reads one format.

    Attributes:
        name: The format's name, for `--format` and a trace's `format`.
        recognises: Whether a JSON value is a record of this format, or part of one. Never raises.
        read: The trace of a record, or of the list of its parts. Raises only `InvalidRecord`.
        gathers: What makes up one record: a JSON object, the elements of one JSON list, the lines of one file (a session), the
            parts of any records and files that are of one group.
        signs: How specific the signs are that `recognises` looks for.
        is_whole: Of a reader that gathers a list: whether the elements are one trace of this format. None: the first decides.
        parts: Of a reader that gathers groups: the parts of a record, each with its group's id. Raises only `InvalidRecord`.
        split: The parts of a record that holds several traces; `read` then takes a part's value. Of lines, it takes the
            list of `SessionLine`.
        why_not: Of a reader of the user's own: what a value lacks to be recognised, for the quarantine.
        continues: Of lines: whether a line that is not recognised belongs to the session that has begun.
        group_of_file: Of groups whose parts do not name theirs: the group that a file's name stands for.
        states: Of groups: where their parts hold no conversation, what they say of one, as lines of the type
            `tracewheel.outcome`; None where they hold one. Raises only `InvalidRecord`.
        chains: Of groups that only their contents tell apart: of all parts, each with its number, the numbers of the parts
            that are one trace each, the first one first. Never raises.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Any, Place], Trace]
    gathers: Literal["record", "list", "lines", "group"] = "record"
    signs: Signs = Signs.SHAPE
    is_whole: Callable[[list[Any]], bool] | None = None
    parts: Callable[[Any], list[tuple[str, Any]]] | None = None
    why_not: Callable[[Any], str | None] | None = None
    split: Callable[[Any], Iterable[Part]] | None = None
    continues: Callable[[Any], bool] | None = None
    group_of_file: Callable[[str], str] | None = None
    states: Callable[[list[Any]], list[dict[str, Any]] | None] | None = None
    chains: Callable[[Iterable[tuple[int, Any]]], Iterator[list[int]]] | None = None
