"""What each dialect has: how a request is read, what a key was told, and how replies and refusals are written."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from tracewheel.core.strict_json import parse_json
from tracewheel.gateway.dialects.fields import CUSTOM
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Message, Refusal, SampledToken

CALLS, RESPONSES, ITEMS = 10_000, 1_000, 20_000  # the most that are kept for a key; the oldest go first
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class StoredResponse:
    """An answer of the responses API: its conversation up to its own message, and its body."""

    history: list[Message]
    body: dict[str, Any]


class Said:
    """The calls, responses and items that one key was given."""

    def __init__(self) -> None:
        self._arguments: OrderedDict[str, list[str]] = OrderedDict()
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def keep_calls(self, reply: ChatReply) -> None:
        """Keep how the arguments of a reply's calls were written."""
        for call in reply.message.get("tool_calls") or ():
            texts = self._arguments.get(call["id"], [])
            if call["function"]["arguments"] not in texts:
                texts = [*texts, call["function"]["arguments"]]
            _keep(self._arguments, call["id"], texts, CALLS)

    def keep_response(self, body: dict[str, Any], history: list[Message]) -> None:
        """Keep an answer of the responses API; `history` ends with its message."""
        _keep(self._responses, body["id"], StoredResponse(history, body), RESPONSES)
        for item in body["output"]:
            _keep(self._items, item["id"], item, ITEMS)

    def response(self, identity: str) -> StoredResponse | None:
        """A kept answer."""
        return self._responses.get(identity)

    def drop_response(self, identity: str) -> bool:
        """Forget an answer; whether there was one."""
        return self._responses.pop(identity, None) is not None

    def item(self, identity: str) -> dict[str, Any] | None:
        """An item of a kept answer."""
        return self._items.get(identity)

    def restored(self, messages: list[Message]) -> list[Message]:
        """The messages with the arguments of our own calls as they were sampled.

        Some clients parse arguments and write them again, with other spaces, and one dialect has no text of them at all.
        Where the values are the same, the text is again the one that was said.
        """
        return [self._restored(message) if message.get("tool_calls") else message for message in messages]

    def _restored(self, message: Message) -> Message:
        return {**message, "tool_calls": [self._call(call) for call in message["tool_calls"]]}

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        texts = self._arguments.get(call["id"], [])
        if not texts or function["arguments"] in texts:
            return call
        value = _value(function["arguments"])
        same = next(
            (text for text in texts if value is not None and value in (_value(text), {CUSTOM: text})), function["arguments"]
        )
        return {**call, "function": {**function, "arguments": same}}


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _keep(kept: OrderedDict[str, Kept], key: str, value: Kept, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


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


# Type and code of each kind.
OPENAI_WORDS: dict[str, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "context_length_exceeded": ("invalid_request_error", "context_length_exceeded"),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "not_found": ("invalid_request_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit": ("requests", "rate_limit_exceeded"),
    "server_error": ("server_error", None),
    "overloaded": ("server_error", "overloaded"),
}


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """The body of a refusal as OpenAI sends it."""
    kind, code = OPENAI_WORDS[refusal.kind]
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code or code}}


class Event(NamedTuple):
    """A server-sent event; `name` is None in a dialect whose events have none."""

    name: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request with how its answer is wanted.

    Attributes:
        request: What the door is asked.
        body: The body as sent.
        stream: Whether the answer comes as events.
        answers: How many answers are wanted.
        history: The messages that a later request may refer to, without instructions.
    """

    request: ChatRequest
    body: dict[str, Any]
    stream: bool = False
    answers: int = 1
    history: list[dict[str, Any]] = field(default_factory=list)


class Dialect(ABC):
    """A vendor's API: pure functions between its JSON and ours. Times are seconds since 1970."""

    END: ClassVar[str | None] = None  # what the last event of a stream holds instead of JSON
    KEEP_ALIVE: ClassVar[bytes] = b": waiting\n\n"  # a comment: no client makes an event of it

    @abstractmethod
    def read(self, body: Any, said: Said) -> Asked:
        """The request in a body.

        Raises:
            Refusal: the body is wrong, or asks for something that this door has not.
        """

    @abstractmethod
    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> Any:
        """The body of the answer."""

    @abstractmethod
    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """The answer as a stream."""

    def remember(self, asked: Asked, replies: Sequence[ChatReply], created: int, said: Said) -> None:
        """Keep what a later request may name or send back."""
        for reply in replies:
            said.keep_calls(reply)

    def status(self, refusal: Refusal) -> int:
        """The HTTP status of a refusal."""
        return refusal.status

    @abstractmethod
    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """The body of a refusal as OpenAI sends it."""

    @abstractmethod
    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """A refusal after a stream has begun."""
