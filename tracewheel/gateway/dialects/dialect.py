"""A dialect: how agents of one vendor speak to the gateway. A wheel adds its own by entry points of `tracewheel.dialects`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from tracewheel.core.kind_table import KindTable, how_to_get
from tracewheel.core.strict_json import parse_json
from tracewheel.gateway.exchange import CUSTOM, ChatReply, ChatRequest, Message, Refusal

DIALECTS = KindTable("tracewheel.dialects", {"chat": "tracewheel.gateway.dialects.chat:ChatCompletions"})
# Where agents ask in dialects that are not the core's: without its wheel they are told which it is.
ELSEWHERE = {
    "/messages": "anthropic",
    "/messages/{rest:path}": "anthropic",
    "/models/{rest:path}": "gemini",
    "/responses": "responses",
    "/responses/{rest:path}": "responses",
}
CALLS = 10_000  # the most that are kept for a key; the oldest go first


def not_installed(name: str) -> Refusal:
    """The refusal of a request in a dialect whose wheel is not there."""
    return Refusal("not_found", f"The dialect '{name}' of this path is {how_to_get('dialect', name)}.", code="unknown_url")


class Said:
    """What one key was told: the arguments of calls, and what dialects keep for later requests."""

    def __init__(self) -> None:
        self._arguments: OrderedDict[str, list[str]] = OrderedDict()
        self._kept: dict[str, OrderedDict[str, Any]] = {}

    def keep_calls(self, reply: ChatReply) -> None:
        """Keep how the arguments of a reply's calls were written."""
        for call in reply.calls:
            texts = self._arguments.get(call.id, [])
            if call.arguments not in texts:
                texts = [*texts, call.arguments]
            _keep(self._arguments, call.id, texts, CALLS)

    def keep(self, sort: str, identity: str, value: Any, most: int) -> None:
        """Keep a value of a dialect's; of its sort at most so many, and the oldest go first."""
        _keep(self._kept.setdefault(sort, OrderedDict()), identity, value, most)

    def kept(self, sort: str, identity: str) -> Any:
        """A kept value; None where there is none any more."""
        return self._kept.get(sort, OrderedDict()).get(identity)

    def drop(self, sort: str, identity: str) -> None:
        """Forget a kept value."""
        self._kept.get(sort, OrderedDict()).pop(identity, None)

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


def _keep(kept: OrderedDict[str, Any], key: str, value: Any, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


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
    history: list[Message] = field(default_factory=list)

    @property
    def custom_tools(self) -> set[str]:
        """The names of tools of OpenAI's type `custom`, whose calls are answered in a form of their own."""
        tools = self.body.get("tools") or ()
        return {(tool.get("custom") or tool)["name"] for tool in tools if tool["type"] == "custom"}


class Dialect(ABC):
    """A vendor's API: its paths, and functions between its JSON and ours. Times are seconds since 1970.

    What is not said here is as in OpenAI's APIs. A wheel names its class as an entry point of `tracewheel.dialects`.

    Example:
        class Plain(Dialect):
            PATHS = ("/plain/{name}",)

            def read(self, body, said):
                fields = Fields(body)
                return Asked(ChatRequest([chat_message("user", fields.text("say"))]), body, fields.flag("stream"))

            def write(self, asked, replies, created):
                return {"said": replies[0].text}

            def events(self, asked, replies, created):
                return [Event(None, {"said": piece.text}) for piece in replies[0].content_pieces()]
    """

    # Paths below the base URL and the version (`/v1`), with Starlette's parameters.
    PATHS: ClassVar[tuple[str, ...]]  # POST: ask for a turn
    COUNT_PATHS: ClassVar[tuple[str, ...]] = ()  # POST: ask for the tokens of a request (`read_for_count`)
    KEPT_PATHS: ClassVar[tuple[str, ...]] = ()  # GET and DELETE, with `{identity}`: of what was said before (`kept`)
    END: ClassVar[str | None] = None  # what the last event of a stream holds instead of JSON
    KEEP_ALIVE: ClassVar[bytes] = b": waiting\n\n"  # a comment: no client makes an event of it

    @classmethod
    def speaks(cls, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a client that asks for models, or for what is not there, is of this dialect; else it gets OpenAI's words."""
        return False

    def at(self, path: Mapping[str, str], query: Mapping[str, str]) -> Self:
        """The dialect of one request, where its path or query says what others have in their bodies.

        Args:
            path: The parameters of the path.
            query: Those of the query.

        Raises:
            Refusal: the path asks for something that this door has not.
        """
        return self

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

    def kept(self, identity: str, said: Said, *, drop: bool) -> Any:
        """The body that answers a request for what was said before, or for forgetting it.

        Raises:
            Refusal: it is not there.
        """
        raise NotImplementedError

    def read_for_count(self, body: Any) -> ChatRequest:
        """The request whose tokens are to be counted.

        Raises:
            Refusal: as for `read`.
        """
        raise NotImplementedError

    def write_count(self, tokens: int) -> Any:
        """The body that tells how many tokens a request has."""
        return {"input_tokens": tokens}

    def write_model(self, name: str) -> dict[str, Any]:
        """A model as clients have it."""
        return {"id": name, "object": "model", "created": 0, "owned_by": "tracewheel"}

    def write_models(self, names: Sequence[str]) -> Any:
        """The body that lists the models."""
        return {"object": "list", "data": [self.write_model(name) for name in names]}

    def status(self, refusal: Refusal) -> int:
        """The HTTP status of a refusal."""
        return refusal.status

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """The body of a refusal."""
        kind, code = OPENAI_WORDS[refusal.kind]
        return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code or code}}

    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """A refusal after a stream has begun."""
        return Event(None, self.error(refusal, request_id))
