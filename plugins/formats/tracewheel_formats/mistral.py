"""Mistral's tool calls. Up to version 7 of its tokenizers a JSON array, from version 11 on a name with its arguments:

[TOOL_CALLS][{"name": "list_files", "arguments": {"path": "/inbox"}}, {"name": "finish", "arguments": {}}]
[TOOL_CALLS]list_files[ARGS]{"path": "/inbox"}[TOOL_CALLS]finish[ARGS]{}
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tracewheel import ParsedCall, ParsedTurn, ToolFormat, read_json_at
from tracewheel_formats.space import skip_space

CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
# A name, then the id of the call in some versions, then the mark of the arguments in some.
_HEAD = re.compile(r"([^\[\]{}\s]+)\s*(?:\[CALL_ID\][^\[\]{}]*)?(?:\[ARGS\])?\s*(?=\{)")


class MistralFormat(ToolFormat):
    """`[TOOL_CALLS]` before a JSON array, or before each name and its arguments."""

    REPLY_FRAMES = ("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]")
    CALL_FRAMES = (CALLS, ARGS, CALL_ID)
    END_TOKENS = ("</s>",)
    THINKING_TAGS = ("[THINK]", "[/THINK]")

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        thinking, text = self.split_thinking(text, CALLS)
        pieces, calls, at = [], [], 0
        while (start := text.find(CALLS, at)) >= 0:
            pieces.append(text[at:start])
            read, at = _read_calls(text, start + len(CALLS))
            calls += read
        return ParsedTurn("".join([*pieces, text[at:]]).strip(), calls, thinking)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        made = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return CALLS + json.dumps(made, ensure_ascii=False)


def _read_calls(text: str, at: int) -> tuple[list[ParsedCall], int]:
    """The calls after a `[TOOL_CALLS]`, and the position after them."""
    at = skip_space(text, at)
    head = None if text.startswith(("[", "{"), at) else _HEAD.match(text, at)
    if head is None and not text.startswith(("[", "{"), at):
        return [ParsedCall(malformed="no name with arguments")], _rest(text, at)
    try:
        value, end = read_json_at(text, head.end() if head else at)
    except ValueError:
        return [ParsedCall(malformed="not JSON")], _rest(text, at)
    if head:
        return [ParsedCall(head.group(1), value)], end
    if not isinstance(value, list):
        return [ParsedCall.from_json(value)], end
    return [ParsedCall.from_json(item) for item in value] or [ParsedCall(malformed="no call in the array")], end


def _rest(text: str, at: int) -> int:
    """Where the calls that cannot be read end: at the next `[TOOL_CALLS]`, or with the turn."""
    following = text.find(CALLS, at)
    return following if following >= 0 else len(text)
