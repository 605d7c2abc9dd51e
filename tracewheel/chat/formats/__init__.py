"""Tool-call formats by built-in name or by `module:Class`."""

from __future__ import annotations

from typing import cast

from tracewheel.chat.formats.base import ParsedCall, ParsedTurn, ToolFormat, UnwritableCallError
from tracewheel.chat.formats.deepseek import DeepseekFormat
from tracewheel.chat.formats.gpt_oss import GptOssFormat
from tracewheel.chat.formats.hermes import HermesFormat
from tracewheel.chat.formats.llama3_json import Llama3JsonFormat
from tracewheel.chat.formats.mistral import MistralFormat
from tracewheel.chat.formats.pythonic import PythonicFormat
from tracewheel.chat.formats.qwen3_coder import Qwen3CoderFormat
from tracewheel.core.plugins import load_class

FORMATS: dict[str, type[ToolFormat]] = {
    "deepseek": DeepseekFormat,
    "gpt_oss": GptOssFormat,
    "hermes": HermesFormat,
    "llama3_json": Llama3JsonFormat,
    "mistral": MistralFormat,
    "pythonic": PythonicFormat,
    "qwen3_coder": Qwen3CoderFormat,
}

AUTO = "auto"  # the format that the chat template writes
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
