"""An answer of Chat Completions as a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel.gateway.dialects.chat_words import created_by, logprob_list, usage
from tracewheel.gateway.dialects.dialect import Asked, Event
from tracewheel.gateway.dialects.pieces import call_pieces, content_pieces, reasoning_pieces
from tracewheel.gateway.exchange import ChatReply


def chat_events(asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
    """The chunks of all answers, and at the end the usage where it is asked for."""
    head = {**created_by(asked, replies[0], created), "object": "chat.completion.chunk"}
    wants_usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
    extra: dict[str, Any] = {"usage": None} if wants_usage else {}
    events = [
        Event(None, {**head, "choices": [{"index": index, "finish_reason": None, "logprobs": None, **choice}], **extra})
        for index, reply in enumerate(replies)
        for choice in _choices(asked, reply)
    ]
    if asked.body.get("return_token_ids"):
        events[0].data["prompt_token_ids"] = list(replies[0].prompt_ids)
    if wants_usage:
        events.append(Event(None, {**head, "choices": [], "usage": usage(replies)}))
    return events


def _choices(asked: Asked, reply: ChatReply) -> Iterator[dict[str, Any]]:
    """What is new in each chunk. Log-probabilities come with their text, or all at the end beside all ids."""
    whole, wanted = bool(asked.body.get("return_token_ids")), asked.request.logprobs
    calls = reply.message.get("tool_calls") or ()
    content = content_pieces(reply)
    yield {"delta": {"role": "assistant", "content": None if calls and not content else "", "refusal": None}}
    for piece in reasoning_pieces(reply):
        yield {"delta": {"reasoning_content": piece.text}}
    spelled = any(piece.token is not None for piece in content)
    for piece in content:
        choice: dict[str, Any] = {"delta": {"content": piece.text}}
        if wanted is not None and not whole and piece.token is not None:
            choice["logprobs"] = logprob_list([piece.token], wanted)
        yield choice
    for index, call in enumerate(calls):
        function = call["function"]
        opened = {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": ""}}
        yield {"delta": {"tool_calls": [{"index": index, **opened}]}}
        for text in call_pieces(function["arguments"]):
            yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": text}}]}}
    last: dict[str, Any] = {"delta": {}, "finish_reason": reply.finish_reason}
    if wanted is not None and (whole or (content and not spelled)):
        last["logprobs"] = logprob_list(reply.tokens, wanted)
    if whole:
        last["token_ids"] = [token.id for token in reply.tokens]
    yield last
