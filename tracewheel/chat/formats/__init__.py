"""Tool-call formats by built-in name or by `module:Class`."""

from __future__ import annotations

from typing import cast

from tracewheel.chat.formats.base import ParsedCall, ParsedTurn, ToolFormat, UnwritableCallError
from tracewheel.core.kind_table import load_class
from tracewheel.core.tool_formats import AUTO, FORMATS

# The key under which a stored message with a malformed call, which keeps its raw text, has its well-formed calls: pairs of
# name and arguments.
WELL_FORMED = "well_formed_calls"

__all__ = ["AUTO", "FORMATS", "WELL_FORMED", "ParsedCall", "ParsedTurn", "ToolFormat", "UnwritableCallError", "make_format"]


def make_format(name: str) -> ToolFormat:
    """The tool-call format of that name.

    Raises:
        ConfigError: there is no such format.
    """
    return cast(ToolFormat, load_class(name, FORMATS, "tool format")())
