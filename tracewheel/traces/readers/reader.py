"""The interface of readers. Each format has a file; `registry` collects the readers and `log_reader` chooses among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import Place


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


@dataclass(frozen=True)
class Reader:
    """Reads one format.

    Attributes:
        name: The format's name, for `--format` and a trace's `format`.
        recognises: Whether a JSON value is a record of this format, or part of one. Never raises.
        read: The trace of a record, or of the list of its parts. Raises only `InvalidRecord`.
        gathers: What makes up one trace: a whole record, the elements of one JSON list, or the spans with one trace id.
        signs: How specific the signs are that `recognises` looks for.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Any, Place], Trace]
    gathers: Literal["record", "list", "trace id"] = "record"
    signs: Signs = Signs.SHAPE
