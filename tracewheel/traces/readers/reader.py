"""The interface of readers. Each format has a file; `log_reader` lists the readers and chooses among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import Place


@dataclass(frozen=True)
class Reader:
    """Reads one format.

    Attributes:
        name: The format's name, for `--format` and a trace's `format`.
        recognises: Whether a JSON value is a record of this format, or part of one. Never raises.
        read: The trace of a record, or of the list of its parts. Raises only `InvalidRecord`.
        gathers: What makes up one trace: a whole record, the elements of one JSON list, or the spans with one trace id.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Any, Place], Trace]
    gathers: Literal["record", "list", "trace id"] = "record"
