"""gpt-oss's harmony format. A turn is a sequence of messages, each with a channel and, if it is a call, a recipient:

    <|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.list_files
    <|constrain|>json<|message|>{"path": "/inbox"}<|call|>

(on one line). `analysis` is thinking; `final`, and `commentary` without a recipient, are the answer. The recipient may also
stand before the channel. A turn ends with `<|call|>` or `<|return|>`, so a policy makes one call a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tracewheel import ParsedCall, ParsedTurn, ToolFormat, read_json_at
from tracewheel_formats.space import skip_space

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
FUNCTIONS = "functions."
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*([a-z]+)")
_STOP = re.compile(r"<\|(?:end|call|return|start)\|>")


class GptOssFormat(ToolFormat):
    """Messages in channels; calls are messages to `functions.NAME`."""

    REPLY_FRAMES = (START, CHANNEL, MESSAGE, END)
    CALL_FRAMES = (CHANNEL, CONSTRAIN, MESSAGE)
    END_TOKENS = (CALL, RETURN)
    THINKING_KEY = "thinking"

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        thinking: list[str] = []
        content: list[str] = []
        calls: list[ParsedCall] = []
        at = 0
        while at < len(text):
            header, body = _header(text, at)
            recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
            if recipient and recipient.group(1) != "assistant":
                call, at = _read_call(text, body, recipient.group(1))
                calls.append(call)
                continue
            stop = _STOP.search(text, body)
            said = text[body : stop.start() if stop else len(text)].strip()
            if channel or said:
                (thinking if channel and channel.group(1) == "analysis" else content).append(said)
            at = _next_message(text, stop.start() if stop else len(text))
        return ParsedTurn("\n".join(filter(None, content)), calls, "\n".join(filter(None, thinking)))

    def render(self, calls: Sequence[ParsedCall]) -> str:
        messages = [
            f"{CHANNEL}commentary to={FUNCTIONS}{call.name} {CONSTRAIN}json{MESSAGE}"
            + json.dumps(call.arguments, ensure_ascii=False)
            for call in calls
        ]
        return self.checked(calls, f"{CALL}{START}assistant".join(messages))


def _header(text: str, at: int) -> tuple[str, int]:
    """The header of the message at `at`, and where its body begins. Text without a header is a body."""
    stop = _STOP.search(text, at)
    limit = stop.start() if stop else len(text)
    message = text.find(MESSAGE, at, limit)
    if message < 0:
        header = text[at:limit]
        return (header, limit) if CHANNEL in header or _RECIPIENT.match(header.strip()) else ("", at)
    return text[at:message], message + len(MESSAGE)


def _read_call(text: str, body: int, recipient: str) -> tuple[ParsedCall, int]:
    name = recipient.removeprefix(FUNCTIONS)
    try:
        arguments, end = read_json_at(text, skip_space(text, body))
    except ValueError:
        return ParsedCall(malformed="not JSON"), _next_message(text, body)
    end = skip_space(text, end)
    if end < len(text) and not _STOP.match(text, end):
        return ParsedCall(malformed="something after the arguments"), _next_message(text, end)
    if not name:
        return ParsedCall(malformed="no name"), _next_message(text, end)
    call = ParsedCall(name, arguments) if isinstance(arguments, dict) else ParsedCall(malformed="arguments are not an object")
    return call, _next_message(text, end)


def _next_message(text: str, at: int) -> int:
    """Where the header of the message after the one that ends at or after `at` begins, past `<|start|>assistant`."""
    stop = _STOP.search(text, at)
    if stop is None:
        return len(text)
    at = skip_space(text, stop.end())
    if stop.group() != START and text.startswith(START, at):
        at += len(START)
    return at + len("assistant") if text.startswith("assistant", at) else at
