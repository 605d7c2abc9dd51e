"""An answer of the Responses API as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracewheel.gateway.dialects.dialect import Asked, Event
from tracewheel.gateway.dialects.pieces import call_pieces, content_pieces, content_tokens, reasoning_pieces
from tracewheel.gateway.dialects.response_output import logprob
from tracewheel.gateway.exchange import ChatReply


def response_events(asked: Asked, reply: ChatReply, opening: dict[str, Any], whole: dict[str, Any]) -> list[Event]:
    """All events: `opening` is the answer before anything was said, `whole` the complete one."""
    events: list[dict[str, Any]] = [{"type": f"response.{state}", "response": opening} for state in ("created", "in_progress")]
    for index, item in enumerate(whole["output"]):
        before = {**item, "status": "in_progress", **({"content": []} if "content" in item else {"arguments": ""})}
        before.pop("encrypted_content", None)
        events.append({"type": "response.output_item.added", "output_index": index, "item": before})
        place = {"item_id": item["id"], "output_index": index}
        events += ({**event, **place} for event in _within(item, reply, asked.request.logprobs))
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [Event(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def _within(item: dict[str, Any], reply: ChatReply, wanted: int | None) -> Iterator[dict[str, Any]]:
    """What happens to an item between its beginning and its end."""
    if item["type"] == "function_call":
        for text in call_pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": text}
        yield {"type": "response.function_call_arguments.done", "name": item["name"], "arguments": item["arguments"]}
        return
    part = item["content"][0]
    name = "response.reasoning_text" if item["type"] == "reasoning" else "response.output_text"
    yield _part("added", {**part, "text": "", **({"logprobs": []} if "logprobs" in part else {})})
    for piece in reasoning_pieces(reply) if item["type"] == "reasoning" else content_pieces(reply):
        shown = [] if wanted is None or piece.token is None else [logprob(piece.token, wanted)]
        yield {"type": f"{name}.delta", "content_index": 0, "delta": piece.text} | _logprobs(item, shown)
    bare = [] if wanted is None else [logprob(token, wanted) for token in content_tokens(reply)]
    yield {"type": f"{name}.done", "content_index": 0, "text": part["text"]} | _logprobs(item, bare)
    yield _part("done", part)


def _logprobs(item: dict[str, Any], shown: list[dict[str, Any]]) -> dict[str, Any]:
    return {"logprobs": shown} if item["type"] == "message" else {}


def _part(what: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.content_part.{what}", "content_index": 0, "part": part}
