"""The tool-call formats: a light table, as the config needs the names without the code."""

from __future__ import annotations

from tracewheel.core.kind_table import KindTable

AUTO = "auto"  # the format that the chat template writes
FORMATS = KindTable(
    "tracewheel.tool_formats",
    {
        "hermes": "tracewheel.chat.formats.hermes:HermesFormat",
        "pythonic": "tracewheel.chat.formats.pythonic:PythonicFormat",
    },
)
