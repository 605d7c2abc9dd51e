"""The Hermes tool-call format, used by Qwen's chat template.

An assistant turn is free text with any number of blocks, each holding one JSON object:

    <tool_call>
    {"name": "list_files", "arguments": {"path": "/inbox"}}
    </tool_call>
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.strict_json import parse_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
REPLY_FRAMES = ("<tool_response>", "</tool_response>")
_BLOCK = re.compile(r"<tool_call>(.*?)(</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)


@dataclass(frozen=True)
class ParsedCall:
    """One call of a turn: a name with arguments, or the reason why it is malformed."""

    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    malformed: str = ""


@dataclass(frozen=True)
class ParsedTurn:
    """A parsed assistant turn: its free text, and its calls in order."""

    content: str
    calls: list[ParsedCall]


def parse_hermes(text: str) -> ParsedTurn:
    """Parse an assistant turn. Never raises: unreadable blocks are malformed calls."""
    calls = [_parse_block(match.group(1), closed=bool(match.group(2))) for match in _BLOCK.finditer(text)]
    return ParsedTurn(content=_BLOCK.sub("", text).strip(), calls=calls)


def _parse_block(block: str, closed: bool) -> ParsedCall:
    if not closed:
        return ParsedCall(malformed=f"{OPEN} without {CLOSE}")
    try:
        call = parse_json(block)
    except ValueError:
        return ParsedCall(malformed="not JSON")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ParsedCall(malformed='no "name"')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return ParsedCall(malformed='"arguments" is not an object')
    return ParsedCall(name=call["name"], arguments=arguments)
