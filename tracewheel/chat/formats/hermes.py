"""The Hermes tool-call format, of Qwen2.5's and Qwen3's chat templates.

An assistant turn is free text with any number of blocks, each holding one JSON object:

    <tool_call>
    {"name": "list_files", "arguments": {"path": "/inbox"}}
    </tool_call>

A block ends at the first closing tag after its JSON object, so an argument may contain the tags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tracewheel.chat.formats.base import ParsedCall, ParsedTurn, ToolFormat, skip_space
from tracewheel.core.strict_json import read_json_at

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesFormat(ToolFormat):
    """JSON objects in `<tool_call>` tags."""

    REPLY_FRAMES = ("<tool_response>", "</tool_response>")
    CALL_FRAMES = (OPEN, CLOSE)
    END_TOKENS = ("<|im_end|>",)

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        thinking, text = self.split_thinking(text, OPEN)
        pieces, calls, at = [], [], 0
        while (start := text.find(OPEN, at)) >= 0:
            pieces.append(text[at:start])
            call, at = _read_block(text, start + len(OPEN))
            calls.append(call)
        return ParsedTurn("".join([*pieces, text[at:]]).strip(), calls, thinking)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        return "\n".join(
            f"{OPEN}\n{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}\n{CLOSE}"
            for call in calls
        )


def _read_block(text: str, at: int) -> tuple[ParsedCall, int]:
    """The call of a block whose body begins at `at`, and the position after the block."""
    try:
        value, end = read_json_at(text, skip_space(text, at))
        end = skip_space(text, end)
        if text.startswith(CLOSE, end):
            return ParsedCall.from_json(value), end + len(CLOSE)
    except ValueError:
        pass
    reopened = text.find(OPEN, at)
    limit = reopened if reopened >= 0 else len(text)
    close = text.find(CLOSE, at, limit)
    if close < 0:
        return ParsedCall(malformed=f"{OPEN} without {CLOSE}"), limit
    return ParsedCall(malformed="not JSON"), close + len(CLOSE)
