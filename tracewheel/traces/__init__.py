"""Readers of trace logs, one file per format: lines in, `Trace` or `Quarantined` out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tracewheel.traces.openai import read_openai
from tracewheel.traces.quarantine import Quarantined
from tracewheel.types import Trace

READERS: dict[str, Callable[[Path, str], Iterator[Trace | Quarantined]]] = {"openai": read_openai}

__all__ = ["READERS", "Quarantined", "read_openai"]
