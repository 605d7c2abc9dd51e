"""Puts the events of a streamed model response together: OpenAI's chat completions and responses,
Anthropic's messages, and Gemini's contents.

A proxy logs a stream as the text of its server-sent events (WHATWG HTML, section 9.2): lines of `data: JSON`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracewheel import object_field, parse_json

BROKEN = "incomplete"  # the reason of a stream that has no end
DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def is_stream(text: str) -> bool:
    """Whether a text is that of server-sent events."""
    start = text.lstrip("\ufeff \r\n")
    return start.startswith(("data:", "event:", ":"))


def response_of_stream(text: str) -> dict[str, Any]:
    """The response that was streamed, as if it had not been; an empty object if the stream holds none.

    A stream that was cut off gives the part that came.
    """
    return response_of_events(list(_events(text)))


def response_of_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response whose stream consists of these events."""
    for event in reversed(events):
        if str(event.get("type", "")).startswith("response.") and isinstance(event.get("response"), dict):
            return event["response"]
    if any(event.get("type") == "message_start" for event in events):
        return _anthropic(events)
    if any(isinstance(event.get("candidates"), list) for event in events):
        return _gemini(events)
    return _chat(events)


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            try:
                event = parse_json(line[5:].strip())
            except ValueError:
                continue  # the line on which the stream was cut off
            if isinstance(event, dict):
                yield event


def _chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    response: dict[str, Any] = {}
    reason: Any = None
    for event in events:
        response |= {key: event[key] for key in ("id", "model", "created", "usage", "error") if event.get(key) is not None}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = object_field(choice, "delta")
        if choice.get("index", 0) == 0:
            reason = choice.get("finish_reason") or reason
            for key in ("content", "reasoning_content", "reasoning", "refusal"):
                if isinstance(delta.get(key), str):
                    message[key] = (message.get(key) or "") + delta[key]
            for part in delta.get("tool_calls") or []:
                _add_call(calls, part)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    if message == {"role": "assistant", "content": None}:
        return {}
    # Each vendor's stream ends with the reason.
    return {**response, "choices": [{"index": 0, "message": message, "finish_reason": reason or BROKEN}]}


def _add_call(calls: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a chunk of a call. The first one has its id and name; of the arguments each has a piece."""
    function = part.get("function") or {}
    call = calls.setdefault(
        part.get("index", len(calls)), {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = call["id"] or part.get("id")
    call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _gemini(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Each event of Gemini is a response with the next parts of its content."""
    response: dict[str, Any] = {}
    parts: list[Any] = []
    reason: Any = None
    for event in events:
        response |= {key: value for key, value in event.items() if value is not None}
        candidates = event.get("candidates")
        first = candidates[0] if isinstance(candidates, list) and candidates and isinstance(candidates[0], dict) else {}
        reason = first.get("finishReason") or reason
        said = object_field(first, "content").get("parts")
        parts += said if isinstance(said, list) else []
    return {**response, "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason or BROKEN}]}


def _anthropic(events: list[dict[str, Any]]) -> dict[str, Any]:
    response: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        index = event.get("index", 0)
        match event.get("type"):
            case "message_start":
                response = dict(event["message"])
            case "content_block_start":
                blocks[index] = {**event["content_block"], "partial_json": ""}
            case "content_block_delta" if index in blocks:
                delta = event["delta"]
                key = DELTAS.get(delta.get("type"), "")
                if key:
                    blocks[index][key] = blocks[index].get(key, "") + delta[key]
            case "message_delta":
                response |= event.get("delta") or {}
    said = {"content": [_block(blocks[index]) for index in sorted(blocks)]}
    return {**response, **said, "stop_reason": response.get("stop_reason") or BROKEN}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """A block without the pieces of its input's JSON text, which become its input."""
    pieces = block.pop("partial_json")
    if pieces:
        try:
            block["input"] = parse_json(pieces)
        except ValueError:
            block["input"] = pieces  # cut off, or the agent's own mistake
    return block
