"""The readers of the formats in `tracewheel.core.log_formats`, the most specific first."""

from __future__ import annotations

import functools
import importlib

from tracewheel.core.log_formats import LOG_FORMATS
from tracewheel.traces.readers.reader import Reader

MODULES = "tracewheel.traces.readers.*"  # they belong to a stage's key: `core.fingerprint` looks for texts of this form


@functools.cache
def built_in_readers() -> tuple[Reader, ...]:
    """The readers of all formats, ordered by how specific the signs are by which they recognise a record."""
    modules = [importlib.import_module(MODULES.replace("*", name)) for name in dict.fromkeys(LOG_FORMATS.values())]
    readers = [reader for module in modules for reader in getattr(module, "READERS", ()) or (module.READER,)]
    unknown = {reader.name for reader in readers} ^ LOG_FORMATS.keys()
    assert not unknown, f"readers and core/log_formats.py differ: {sorted(unknown)}"
    return tuple(sorted(readers, key=lambda reader: -reader.signs))
