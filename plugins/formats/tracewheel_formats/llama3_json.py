"""Llama 3's JSON tool calls, of Llama 3.1 and 3.2's chat templates.

An assistant turn is one JSON object a call, with or without a tag before it, and with a semicolon between parallel calls:

    <|python_tag|>{"name": "list_files", "parameters": {"path": "/inbox"}}; {"name": "finish", "parameters": {}}

Without the tag the format has no marker of its own. A turn that begins with a brace is a call, unless it is a JSON object
that looks nothing like one. Within prose only an object with a name and parameters, in this order, is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tracewheel import ParsedCall, ParsedTurn, ToolFormat, read_json_at
from tracewheel_formats.space import skip_space

TAG = "<|python_tag|>"
_KEYS = ("parameters", "arguments")
_BEGIN = re.compile(
    re.escape(TAG) + r'|\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)"\s*:'
)


class Llama3JsonFormat(ToolFormat):
    """JSON objects with `name` and `parameters`."""

    REPLY_FRAMES = ("<|start_header_id|>ipython<|end_header_id|>",)
    CALL_FRAMES = (TAG,)
    END_TOKENS = ("<|eot_id|>", "<|eom_id|>")

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        start = skip_space(text, 0)
        if text.startswith("{", start) and _other_object(text, start):
            return ParsedTurn(text.strip(), [])
        pieces: list[str] = []
        calls: list[ParsedCall] = []
        at = 0 if text.startswith("{", start) else _next_call(text, 0, pieces)
        while at is not None:
            call, at = _read_call(text, at)
            calls.append(call)
            following = skip_space(text, at)
            if not text.startswith(";", following):
                at = _next_call(text, at, pieces)
            elif text.startswith("{", skip_space(text, following + 1)):
                at = following + 1
            else:
                at = _next_call(text, following + 1, pieces)
        return ParsedTurn("".join(pieces).strip(), calls)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        return "; ".join(json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False) for call in calls)


def _other_object(text: str, at: int) -> bool:
    """Whether the turn is a JSON object without any key of a call: an answer that happens to be JSON."""
    try:
        value, _ = read_json_at(text, at)
    except ValueError:
        return False
    return isinstance(value, dict) and not value.keys() & {"name", *_KEYS}


def _next_call(text: str, at: int, pieces: list[str]) -> int | None:
    """Where the next call begins; what comes before it is free text."""
    found = _BEGIN.search(text, at)
    pieces.append(text[at : found.start()] if found else text[at:])
    if found is None:
        return None
    return found.end() if found.group() == TAG else found.start()


def _read_call(text: str, at: int) -> tuple[ParsedCall, int]:
    """The call at `at` and the position after it. What cannot be read takes the rest of the turn with it."""
    try:
        value, end = read_json_at(text, skip_space(text, at))
    except ValueError:
        return ParsedCall(malformed="not JSON"), len(text)
    return ParsedCall.from_json(value, _KEYS, needs_arguments=True), end
