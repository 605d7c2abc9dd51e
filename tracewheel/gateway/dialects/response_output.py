"""The output items of an answer of the Responses API."""

from __future__ import annotations

from typing import Any

from tracewheel.gateway.dialects.dialect import Asked
from tracewheel.gateway.dialects.pieces import content_tokens, reasoning_tokens
from tracewheel.gateway.dialects.response_input import sealed
from tracewheel.gateway.exchange import ChatReply, SampledToken

ENCRYPTED = "reasoning.encrypted_content"


def make_output(asked: Asked, reply: ChatReply) -> list[dict[str, Any]]:
    """Thinking, text and calls of a turn as items."""
    message = reply.message
    calls = message.get("tool_calls") or ()
    status = "incomplete" if reply.finish_reason == "length" else "completed"
    items: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content"):
        item: dict[str, Any] = {"id": f"rs_{reply.id}", "type": "reasoning", "summary": [], "status": status}
        item["content"] = [{"type": "reasoning_text", "text": thought}]
        if ENCRYPTED in (asked.body.get("include") or ()):
            item["encrypted_content"] = sealed(thought)
        items.append(item)
    if message.get("content") or not calls:
        part: dict[str, Any] = {"type": "output_text", "text": message.get("content") or "", "annotations": [], "logprobs": []}
        if asked.request.logprobs is not None:
            part["logprobs"] = [logprob(token, asked.request.logprobs, with_bytes=True) for token in content_tokens(reply)]
        items.append({"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "status": status, "content": [part]})
    for index, call in enumerate(calls):
        items.append(
            {
                "id": f"fc_{reply.id}_{index}",
                "type": "function_call",
                "status": status,
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
        )
    return items


def logprob(token: SampledToken, alternatives: int, *, with_bytes: bool = False) -> dict[str, Any]:
    """A token's log-probability; the vendor gives bytes in whole answers only."""

    def one(text: str, value: float) -> dict[str, Any]:
        return {"token": text, "logprob": value, **({"bytes": list(text.encode())} if with_bytes else {})}

    return {**one(token.text, token.logprob), "top_logprobs": [one(*other) for other in token.alternatives[:alternatives]]}


def response_usage(reply: ChatReply) -> dict[str, Any]:
    """Tokens of the context and of the turn."""
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": len(reply.tokens),
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens(reply)},
        "total_tokens": reply.prompt_tokens + len(reply.tokens),
    }
