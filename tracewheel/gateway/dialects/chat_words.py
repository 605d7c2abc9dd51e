"""What an answer of Chat Completions has, whole or as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.gateway.dialects.dialect import Asked
from tracewheel.gateway.dialects.pieces import reasoning_tokens
from tracewheel.gateway.exchange import ChatReply, SampledToken


def created_by(asked: Asked, reply: ChatReply, created: int) -> dict[str, Any]:
    """The head of an answer. Its fingerprint is the policy's version."""
    return {
        "id": f"chatcmpl-{reply.id}",
        "created": created,
        "model": asked.request.model,
        "system_fingerprint": f"policy-{reply.policy_version}",
    }


def usage(replies: Sequence[ChatReply]) -> dict[str, Any]:
    """Tokens of the context, once, and of all answers."""
    completion = sum(len(reply.tokens) for reply in replies)
    return {
        "prompt_tokens": replies[0].prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": replies[0].prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": replies[0].cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": sum(map(reasoning_tokens, replies))},
    }


def logprob_list(tokens: Sequence[SampledToken], alternatives: int) -> dict[str, Any] | None:
    """Log-probabilities of tokens; None where there is no token, as for a call without text."""
    content = [
        {**_logprob(token.text, token.logprob), "top_logprobs": [_logprob(*one) for one in token.alternatives[:alternatives]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None} if content else None


def _logprob(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
