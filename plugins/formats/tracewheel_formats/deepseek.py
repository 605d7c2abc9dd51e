"""DeepSeek's tool calls, between markers that are single tokens. V3 and R1 name the type and fence the JSON, V3.1 does not:

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>list_files
```json
{"path": "/inbox"}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>list_files<｜tool▁sep｜>{"path": "/inbox"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tracewheel import ParsedCall, ParsedTurn, ToolFormat, read_json_at
from tracewheel_formats.space import skip_space

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCED_NAME = re.compile(r"([^\n<]+)\n```json\n")


class DeepseekFormat(ToolFormat):
    """Names and JSON arguments between `<｜tool▁call▁begin｜>` and `<｜tool▁call▁end｜>`."""

    REPLY_FRAMES = (
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>",
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
    )
    CALL_FRAMES = (BEGIN, END, CALL, SEPARATOR, CALL_END)
    END_TOKENS = ("<｜end▁of▁sentence｜>",)

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        thinking, text = self.split_thinking(text, CALL)
        begin = text.find(BEGIN)
        start = begin + len(BEGIN) if begin >= 0 else text.find(CALL)
        if start < 0:
            return ParsedTurn(text.strip(), [], thinking)
        calls, at = _read_calls(text, start)
        if begin < 0:
            calls = [ParsedCall(malformed=f"{CALL} without {BEGIN}")] * len(calls)
        before = text[: begin if begin >= 0 else start]
        return ParsedTurn("".join([before, text[at:]]).strip(), calls, thinking)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        written = "".join(
            f"{CALL}{call.name}{SEPARATOR}{json.dumps(call.arguments, ensure_ascii=False)}{CALL_END}" for call in calls
        )
        return self.checked(calls, f"{BEGIN}{written}{END}")


def _read_calls(text: str, at: int) -> tuple[list[ParsedCall], int]:
    """The calls of a section that begins at `at`, and the position after the section."""
    calls: list[ParsedCall] = []
    while True:
        at = skip_space(text, at)
        if text.startswith(END, at):
            return calls or [ParsedCall(malformed=f"{BEGIN} without a call")], at + len(END)
        if not text.startswith(CALL, at):
            break
        call, at = _read_call(text, at + len(CALL))
        calls.append(call)
    if at == len(text) and calls:  # V3's own template leaves out the end after a single call
        return calls, at
    return [*calls, ParsedCall(malformed=f"something else than a call before {END}")], _after(text, END, at)


def _read_call(text: str, at: int) -> tuple[ParsedCall, int]:
    separator = text.find(SEPARATOR, at, _limit(text, at))
    if separator < 0:
        return ParsedCall(malformed=f"{CALL} without {SEPARATOR}"), _limit(text, at)
    body = separator + len(SEPARATOR)
    fenced = _FENCED_NAME.match(text, body)
    name = (fenced.group(1) if fenced else text[at:separator]).strip()
    try:
        arguments, end = read_json_at(text, skip_space(text, fenced.end() if fenced else body))
    except ValueError:
        return ParsedCall(malformed="not JSON"), _after_call(text, body)
    end = skip_space(text, end)
    if fenced:
        end = skip_space(text, end + 3) if text.startswith("```", end) else end
    if not text.startswith(CALL_END, end):
        return ParsedCall(malformed=f"{CALL} without {CALL_END}"), _after_call(text, body)
    end += len(CALL_END)
    if not name:
        return ParsedCall(malformed="no name"), end
    return (
        ParsedCall(name, arguments) if isinstance(arguments, dict) else ParsedCall(malformed="arguments are not an object")
    ), end


def _limit(text: str, at: int) -> int:
    """The start of the next call, or the end of the text: no call reaches further."""
    following = text.find(CALL, at)
    return following if following >= 0 else len(text)


def _after_call(text: str, at: int) -> int:
    limit = _limit(text, at)
    end = text.find(CALL_END, at, limit)
    return end + len(CALL_END) if end >= 0 else limit


def _after(text: str, marker: str, at: int) -> int:
    found = text.find(marker, at)
    return found + len(marker) if found >= 0 else len(text)
