"""What a reader is. There is one file for each format; `detect` holds them all and chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import Place


@dataclass(frozen=True)
class Reader:
    """One format.

    Attributes:
        name: How `--format` and a trace's `format` call it.
        recognises: Whether a JSON value is a record of this format, or one of its parts. Never raises.
        read: The trace of a record, or of the list of its parts. Raises `InvalidRecord` and nothing else.
        gathers: How the parts of one trace are found: a record is whole; the elements of one JSON list are parts of
            one trace; or spans anywhere that have one trace id.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Any, Place], Trace]
    gathers: Literal["record", "list", "trace id"] = "record"
