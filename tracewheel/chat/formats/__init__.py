"""Tool-call formats by built-in name or by `module:Class`."""

from __future__ import annotations

from typing import cast

from tracewheel.chat.formats.base import ParsedCall, ParsedTurn, ToolFormat, UnwritableCallError
from tracewheel.chat.formats.hermes import HermesFormat
from tracewheel.core.plugins import load_class

FORMATS: dict[str, type] = {"hermes": HermesFormat}

__all__ = ["FORMATS", "ParsedCall", "ParsedTurn", "ToolFormat", "UnwritableCallError", "make_format"]


def make_format(name: str) -> ToolFormat:
    """The tool-call format of that name.

    Raises:
        ConfigError: there is no such format.
    """
    return cast(ToolFormat, load_class(name, FORMATS, "tool format")())
