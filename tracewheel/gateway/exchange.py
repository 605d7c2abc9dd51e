"""What a program asks of the model and what it gets, in one form for all dialects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

MODEL = "policy"  # as which a program knows it; it may name any other
Message = dict[str, Any]
FinishReason = Literal["stop", "tool_calls", "length"]


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
