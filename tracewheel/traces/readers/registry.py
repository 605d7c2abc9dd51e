"""The readers of the formats in `tracewheel.core.log_formats`, the most specific first."""

from __future__ import annotations

import functools
import importlib

from tracewheel.core.log_formats import AUTO, LOG_FORMATS
from tracewheel.traces.readers import requests
from tracewheel.traces.readers.reader import Reader


@functools.cache
def built_in_readers(format: str = AUTO) -> tuple[Reader, ...]:
    """The readers of a format, of all with `auto`, ordered by how specific the signs are by which they recognise a record."""
    names = formats_read(format)
    modules = [importlib.import_module(module) for module in dict.fromkeys(map(module_of, names))]
    readers = [reader for module in modules for reader in getattr(module, "READERS", ()) or (module.READER,)]
    unknown = set(names) - {reader.name for reader in readers}
    assert not unknown, f"readers and core/log_formats.py differ: {sorted(unknown)}"
    return tuple(sorted((reader for reader in readers if reader.name in names), key=lambda reader: -reader.signs))


def formats_read(format: str) -> tuple[str, ...]:
    """The formats whose readers take part; a provider's bodies are read in logs of requests, too."""
    if format == AUTO:
        return tuple(LOG_FORMATS)
    return (format, requests.FORMAT) if format in requests.PROVIDERS else (format,)


def module_of(format: str) -> str:
    """The module that reads a format."""
    return f"{__package__}.{LOG_FORMATS[format]}"
