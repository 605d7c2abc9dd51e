"""What a program asks of the model and what it gets, in one form for all dialects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

from tracewheel.traces.readers.content import arguments_text
from tracewheel.traces.readers.messages import read_arguments

MODEL = "policy"  # as which a program knows it; it may name any other
Message = dict[str, Any]
FinishReason = Literal["stop", "tool_calls", "length"]
CUSTOM = "input"  # the argument of a custom tool, which takes any text
WRAPPED = "INVALID_JSON"  # the key of a call's arguments that are no object, for vendors that know objects only
WORD = re.compile(r"\s*\S+\s*|\s+")
CALL_PIECE = 24  # characters of a call's arguments in an event


class ToolCall(NamedTuple):
    """A call of a tool; `arguments` is the text that the policy said.

    Example:
        >>> ToolCall.given("call-1", "find", {"what": "keys"}).arguments
        '{"what": "keys"}'
    """

    id: str
    name: str
    arguments: str

    @classmethod
    def given(cls, identity: str, name: str, value: dict[str, Any]) -> Self:
        """A call whose arguments come back as an object (see `value`)."""
        wrapped = value.get(WRAPPED)
        return cls(identity, name, wrapped if isinstance(wrapped, str) and len(value) == 1 else arguments_text(value))

    @classmethod
    def custom(cls, identity: str, name: str, text: str) -> Self:
        """A call of a custom tool, as the call of a function with one text."""
        return cls(identity, name, arguments_text({CUSTOM: text}))

    @property
    def value(self) -> dict[str, Any]:
        """The arguments as an object; those that are none are wrapped in one."""
        given = read_arguments(self.arguments)
        return {WRAPPED: self.arguments} if given is None else given

    @property
    def object_text(self) -> str:
        """The text of `value`: as it was said, where that is an object."""
        return self.arguments if read_arguments(self.arguments) is not None else arguments_text(self.value)

    @property
    def text(self) -> str:
        """The text that a custom tool is given; arguments that are none are given as they are."""
        given = read_arguments(self.arguments)
        text = given.get(CUSTOM) if given is not None and len(given) == 1 else None
        return text if isinstance(text, str) else self.arguments

    @staticmethod
    def pieces(text: str) -> list[str]:
        """A text of arguments, cut for streaming."""
        return [text[at : at + CALL_PIECE] for at in range(0, len(text), CALL_PIECE)]


def chat_message(
    role: str, content: str, *, reasoning: str = "", calls: Sequence[ToolCall] = (), call_id: str | None = None
) -> Message:
    """A message in OpenAI's form, as a `ChatRequest` has it: no content beside calls is None, keys without a value are absent.

    Args:
        role: `system`, `user`, `assistant` or `tool`.
        content: Its text.
        reasoning: What the assistant thought.
        calls: The assistant's calls.
        call_id: The call that a tool replies to.
    """
    if role == "tool":
        return {"role": role, "tool_call_id": call_id, "content": content}
    message: Message = {"role": role, "content": (content or None) if calls else content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}} for one in calls
        ]
    return message


@dataclass(frozen=True)
class AnswerForm:
    """A JSON schema as text, and where it stands in the request, as in `response_format.json_schema.schema`."""

    schema: str
    param: str


@dataclass(frozen=True)
class ChatRequest:
    """A request for one turn.

    Attributes:
        messages: The history in OpenAI chat format; contents are text, thinking is in `reasoning_content`.
        tools: Schemas in OpenAI format.
        model: The model's name as the program gave it; see `agent`.
        max_tokens: The most tokens of the turn, None for the gateway's own limit.
        temperature: None for the gateway's. An episode that is trained on is always sampled at the gateway's.
        top_p: As `temperature`.
        stop: Texts before which the turn ends.
        tool: The name of the tool that must be called; None: the model chooses.
        must_call: Whether the turn must call a tool, `tool` where that is given.
        parallel: Whether the turn may hold several calls.
        logprobs: How many alternatives of each token are wanted; None: no log-probabilities.
        seed: The program's own seed, None without.
        prefill: What the turn begins with, as the program has written it.
        form: The JSON schema that its answer must follow, None for any text.
        dropped: What the program asked for that the policy is not given, as `tools.web_search` or `image`.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    tool: str | None = None
    must_call: bool = False
    parallel: bool = True
    logprobs: int | None = None
    seed: int | None = None
    prefill: str = ""
    form: AnswerForm | None = None
    dropped: frozenset[str] = frozenset()

    @property
    def agent(self) -> str:
        """The name of the agent that asks: the part of `model` after the slash, or another model than ours."""
        name, slash, agent = self.model.partition("/")
        return agent if slash or name == MODEL else name

    def check_calls(self, param: str) -> None:
        """Check that replies of tools follow their calls and that each call has its reply, as the vendors do.

        Args:
            param: Where the messages stand in the request.

        Raises:
            Refusal: they do not.
        """
        open_calls: Counter[str] = Counter()
        for message in self.messages:
            if message["role"] == "tool":
                if not open_calls[message["tool_call_id"]]:
                    found = message["tool_call_id"]
                    text = f"No tool call found for the tool output with id {found!r:.80} in the message before."
                    raise Refusal.invalid(text, param)
                open_calls[message["tool_call_id"]] -= 1
                if not open_calls[message["tool_call_id"]]:
                    del open_calls[message["tool_call_id"]]
                continue
            if open_calls:
                break
            open_calls = Counter(one["id"] for one in message.get("tool_calls") or ())
        if open_calls:
            missing = ", ".join(open_calls.elements())[:200]
            text = f"No tool output found for these tool calls, which must be answered by the next messages: {missing}."
            raise Refusal.invalid(text, param)


@dataclass(frozen=True)
class SampledToken:
    """A token of a reply as a vendor's `logprobs` show it.

    `alternatives` are the likeliest tokens at its place, texts with log-probabilities, likeliest first; empty where the
    engine knows none.
    """

    id: int
    text: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


class Piece(NamedTuple):
    """A piece of text and the token that it comes from, None where the tokens do not spell the text."""

    text: str
    token: SampledToken | None


@dataclass(frozen=True)
class ChatReply:
    """A turn.

    Attributes:
        message: The assistant message in OpenAI chat format, with `reasoning_content` where the policy thought.
        finish_reason: Why it ended; `length` where a token limit cut it off.
        prompt_tokens: Tokens of its context.
        cached_tokens: How many of these the engine had computed already.
        tokens: The sampled tokens, the end token included.
        id: Of this turn, unique within the gateway.
        stop_sequence: Which of the request's `stop` ended it, None for none.
        policy_version: The version that sampled its last token.
        prompt_ids: Ids of its context, empty where they are not told.
    """

    message: Message
    finish_reason: FinishReason
    prompt_tokens: int
    tokens: tuple[SampledToken, ...]
    id: str
    cached_tokens: int = 0
    stop_sequence: str | None = None
    policy_version: int = 0
    prompt_ids: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """What it says, "" beside calls alone."""
        return self.message.get("content") or ""

    @property
    def reasoning(self) -> str:
        """What it thought."""
        return self.message.get("reasoning_content") or ""

    @property
    def calls(self) -> list[ToolCall]:
        """Its calls."""
        made = self.message.get("tool_calls") or ()
        return [ToolCall(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in made]

    @property
    def shown(self) -> Message:
        """What a program gets to see of its message, and so what comes back of it."""
        return chat_message("assistant", self.text, reasoning=self.reasoning, calls=self.calls)

    def content_pieces(self, after: str = "") -> list[Piece]:
        """Its text, token by token, without the beginning `after`."""
        start = 0
        if self.reasoning and (at := "".join(token.text for token in self.tokens).find(self.reasoning)) >= 0:
            start = at + len(self.reasoning)
        return self._pieces(self.text.removeprefix(after), start)

    def reasoning_pieces(self) -> list[Piece]:
        """Its thinking, token by token."""
        return self._pieces(self.reasoning, 0)

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens its thinking took; 0 where the tokens do not spell it."""
        return sum(piece.token is not None for piece in self.reasoning_pieces())

    @property
    def content_tokens(self) -> list[SampledToken]:
        """The tokens of its text; all of the turn's where they do not spell it."""
        pieces = self.content_pieces()
        found = [piece.token for piece in pieces if piece.token is not None]
        return list(self.tokens) if pieces and not found else found

    def _pieces(self, text: str, start: int) -> list[Piece]:
        if not text:
            return []
        first = "".join(token.text for token in self.tokens).find(text, start)
        if first < 0:
            return [Piece(word, None) for word in WORD.findall(text)]
        pieces, at = [], 0
        for token in self.tokens:
            begin, end = max(first, at), min(first + len(text), at + len(token.text))
            if begin < end:
                pieces.append(Piece(text[begin - first : end - first], token))
            at += len(token.text)
        return pieces


NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}


class Refusal(Exception):
    """A request that is answered with an error, in the words of the dialect that it came in.

    Attributes:
        kind: One of `KINDS`, which give the HTTP status.
        param: The field at fault, as in `messages[2].content`.
        code: The vendor's word for it, where the kind does not say it.
        retry_after: Seconds after which the same request may be answered. None: asking again is of no use, and clients
            are told so; but what is overloaded may always be asked again.
    """

    KINDS: ClassVar[dict[str, int]] = {
        "invalid_request": 400,
        "context_length_exceeded": 400,
        "authentication": 401,
        "not_found": 404,
        "too_large": 413,
        "rate_limit": 429,
        "server_error": 500,
        "overloaded": 503,
    }

    def __init__(
        self, kind: str, message: str, param: str | None = None, *, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.param = kind, message, param
        self.code, self.retry_after = code, retry_after

    @classmethod
    def invalid(cls, message: str, param: str | None, code: str | None = None) -> Self:
        """Of a request that is wrong in the field `param`."""
        return cls("invalid_request", message, param, code=code)

    @classmethod
    def wrong_type(cls, value: Any, wanted: str, param: str) -> Self:
        """Of a value of another type than the vendor documents."""
        got = "null" if value is None else NAMES.get(type(value), type(value).__name__)
        return cls.invalid(f"Invalid type for '{param}': expected {wanted}, but got {got} instead.", param, "invalid_type")

    @classmethod
    def wrong_value(cls, value: Any, known: Collection[str], param: str) -> Self:
        """Of a value that is none of the known ones."""
        supported = ", ".join(f"'{one}'" for one in known)
        return cls.invalid(f"Invalid value: {value!r:.80}. Supported values are: {supported}.", param, "invalid_value")

    @classmethod
    def unsupported(cls, what: str, param: str) -> Self:
        """Of something that the vendor has and this door has not."""
        return cls.invalid(f"Unsupported parameter: '{param}': {what}.", param, "unsupported_parameter")

    @property
    def field(self) -> str:
        """The field at fault without its places, to count by; the kind where no field is."""
        return re.sub(r"\[\d+\]", "", self.param or self.kind)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.KINDS[self.kind]


class Door(Protocol):
    """Who answers requests: an episode's tree in training, the served policy otherwise."""

    def admits(self, key: str, episode: str | None) -> bool:
        """Whether `key` may ask at the base URL of `episode`, or at the common one (None)."""
        ...

    async def answer(self, key: str, request: ChatRequest) -> ChatReply:
        """The next turn for the program that holds `key`.

        Raises:
            Refusal: the key is unknown, the request cannot be answered, or a limit is reached.
        """
        ...

    def models(self, key: str) -> list[str]:
        """Names of the models behind the door.

        Raises:
            Refusal: the key is unknown.
        """
        ...


@runtime_checkable
class HearsRefusals(Protocol):
    """A door that is told of requests that were refused before they came to it."""

    def refused(self, key: str, refusal: Refusal) -> None:
        """The request of a program, whose body was wrong."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A door that also tells how long a request's context is."""

    async def count_tokens(self, key: str, request: ChatRequest) -> int:
        """The tokens of the context that `request` would have.

        Raises:
            Refusal: the key is unknown, or the request cannot be answered.
        """
        ...
