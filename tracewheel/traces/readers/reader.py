"""The interface of readers. Each format has a file with its `READERS`; `log_reader` chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
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
            parts of any records and files that are of one group, or the requests that continue one another.
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
        request: Of requests: the request of a record. Raises only `InvalidRecord`.
        entries: Of requests: the records in a value that holds several; None for any other value. Never raises.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Any, Place], Trace]
    gathers: Literal["record", "list", "lines", "group", "request"] = "record"
    signs: Signs = Signs.SHAPE
    is_whole: Callable[[list[Any]], bool] | None = None
    parts: Callable[[Any], list[tuple[str, Any]]] | None = None
    why_not: Callable[[Any], str | None] | None = None
    split: Callable[[Any], Iterable[Part]] | None = None
    continues: Callable[[Any], bool] | None = None
    group_of_file: Callable[[str], str] | None = None
    states: Callable[[list[Any]], list[dict[str, Any]] | None] | None = None
    request: Callable[[Any], LoggedRequest] | None = None
    entries: Callable[[Any], list[Any] | None] | None = None


@dataclass(frozen=True)
class LoggedRequest:
    """One request to a model.

    Attributes:
        inputs: The messages that were sent.
        outputs: The messages of the response; empty when it failed or was not logged.
        id: The response's id, or the record's.
        previous: The id of the response that it continues, where the provider keeps the conversation.
    """

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    id: str | None
    previous: str | None
    session: str | None
    user: str | None
    created: str | None
    model: str | None
    outcome: float | None
    task: str | None
    tools: list[dict[str, Any]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def moment(self) -> float | None:
        """Its time, to order requests of one log: seconds if it is a date, else the number that was logged."""
        try:
            return float(self.created) if self.created else None
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(str(self.created)).timestamp()
        except ValueError:
            return None


@dataclass(frozen=True)
class RequestBodies:
    """The bodies of one provider's requests, for the format `requests` (entry points of `tracewheel.request_bodies`).

    Attributes:
        is_request: Whether an object is the body of a request. Never raises.
        is_response: Whether an object is the body of a response. Never raises.
        read_exchange: A request with its response, or with an empty object. Raises only `InvalidRecord`.
        is_entry: Whether a value is an entry of the provider's own log of requests. Never raises.
        pair_of: Of such an entry: its bodies as `request` and `response`, and what lies beside them. Raises only
            `InvalidRecord`.
    """

    is_request: Callable[[dict[str, Any]], bool]
    is_response: Callable[[dict[str, Any]], bool]
    read_exchange: Callable[[dict[str, Any], dict[str, Any]], LoggedRequest]
    is_entry: Callable[[Any], bool] | None = None
    pair_of: Callable[[dict[str, Any]], dict[str, Any]] | None = None
