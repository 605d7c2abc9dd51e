"""Parts of a sampled turn: which tokens its text is made of, and the text cut for streaming."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tracewheel.gateway.exchange import ChatReply, SampledToken

WORD = re.compile(r"\s*\S+\s*|\s+")
CALL_PIECE = 24  # characters of a call's arguments in an event


class Piece(NamedTuple):
    """A piece of text and the token that it comes from, None where the tokens do not spell the text."""

    text: str
    token: SampledToken | None


def content_pieces(reply: ChatReply) -> list[Piece]:
    """A reply's text, token by token."""
    start = _end_of(reply, reply.message.get("reasoning_content") or "")
    return _pieces(reply.tokens, reply.message.get("content") or "", start)


def reasoning_pieces(reply: ChatReply) -> list[Piece]:
    """A reply's thinking, token by token."""
    return _pieces(reply.tokens, reply.message.get("reasoning_content") or "", 0)


def reasoning_tokens(reply: ChatReply) -> int:
    """How many tokens a reply's thinking took; 0 where the tokens do not spell it."""
    return sum(piece.token is not None for piece in reasoning_pieces(reply))


def content_tokens(reply: ChatReply) -> list[SampledToken]:
    """The tokens of a reply's text; all of the turn's where they do not spell it."""
    pieces = content_pieces(reply)
    found = [piece.token for piece in pieces if piece.token is not None]
    return list(reply.tokens) if pieces and not found else found


def call_pieces(arguments: str) -> list[str]:
    """A call's arguments, cut for streaming."""
    return [arguments[at : at + CALL_PIECE] for at in range(0, len(arguments), CALL_PIECE)]


def _end_of(reply: ChatReply, text: str) -> int:
    """Where a text ends in the turn; 0 where it is not there."""
    at = "".join(token.text for token in reply.tokens).find(text) if text else -1
    return at + len(text) if at >= 0 else 0


def _pieces(tokens: Sequence[SampledToken], text: str, start: int) -> list[Piece]:
    if not text:
        return []
    first = "".join(token.text for token in tokens).find(text, start)
    if first < 0:
        return [Piece(word, None) for word in WORD.findall(text)]
    pieces, at = [], 0
    for token in tokens:
        begin, end = max(first, at), min(first + len(text), at + len(token.text))
        if begin < end:
            pieces.append(Piece(text[begin - first : end - first], token))
        at += len(token.text)
    return pieces
