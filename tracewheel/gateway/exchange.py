"""What a program asks of the model and what it gets, in one form for all dialects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

Message = dict[str, Any]
FinishReason = Literal["stop", "tool_calls", "length"]


@dataclass(frozen=True)
class ChatRequest:
    """A request for one turn.

    Attributes:
        messages: The history in OpenAI chat format; contents are text, thinking is in `reasoning_content`.
        tools: Schemas in OpenAI format.
        model: The model's name as the program gave it; what stands after a slash names the agent that asks.
        max_tokens: The most tokens of the turn, None for the gateway's own limit.
        temperature: None for the gateway's. An episode that is trained on is always sampled at the gateway's.
        top_p: As `temperature`.
        stop: Texts before which the turn ends.
        tool: The name of the tool that must be called; None: the model chooses.
        logprobs: How many alternatives of each token are wanted; None: no log-probabilities.
        seed: The program's own seed, None without.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    tool: str | None = None
    logprobs: int | None = None
    seed: int | None = None

    @property
    def agent(self) -> str:
        """The name of the agent that asks: the part of `model` after the slash."""
        return self.model.partition("/")[2]


@dataclass(frozen=True)
class SampledToken:
    """A token of a reply as a vendor's `logprobs` show it."""

    id: int
    text: str
    logprob: float


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
    """

    message: Message
    finish_reason: FinishReason
    prompt_tokens: int
    tokens: tuple[SampledToken, ...]
    id: str
    cached_tokens: int = 0
    stop_sequence: str | None = None
    policy_version: int = 0


class Refusal(Exception):
    """A request that is answered with an error, in the words of the dialect that it came in.

    `kind` is one of `KINDS`, which give the HTTP status; `param` names the field at fault.
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

    def __init__(self, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.param = kind, message, param

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.KINDS[self.kind]


class Door(Protocol):
    """Who answers requests: an episode's tree in training, the served policy otherwise."""

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
