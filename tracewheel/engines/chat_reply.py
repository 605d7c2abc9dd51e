"""An endpoint's reply: the message, its cost, and its token ids if the server returns them; and the budget for replies."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from tracewheel.config import PricesConfig
from tracewheel.core.errors import InfrastructureError

Message = dict[str, Any]
UNKNOWN_LOGPROB = -9999.0  # vLLM's, for a token without a log-probability


@dataclass(frozen=True)
class Usage:
    """One reply's usage in the endpoint's own tokens; `cached_tokens` are among the prompt's.

    `cost` is None without prices, and if the endpoint reports no usage (`known` is then false).
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    known: bool = True


@dataclass(frozen=True)
class ReplyTokens:
    """Ids of the prompt on the server, and ids and log-probabilities of the model's turn, end token included."""

    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Reply:
    """An assistant message in OpenAI's format, why it ended, its usage, and its tokens or why there are none."""

    message: Message
    ended_by: str
    usage: Usage = Usage()
    tokens: ReplyTokens | None = None
    without_tokens: str = ""

    def to_record(self) -> dict[str, Any]:
        """The reply as JSON types."""
        tokens = self.tokens and vars(self.tokens)
        return {**vars(self), "usage": vars(self.usage), "tokens": tokens}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Reply:
        """The inverse of `to_record`."""
        tokens = record["tokens"] and ReplyTokens(**record["tokens"])
        return cls(**{**record, "usage": Usage(**record["usage"]), "tokens": tokens})


def read_usage(answer: Any, prices: PricesConfig | None) -> Usage:
    """A chat completion's usage.

    Raises:
        ValueError, TypeError, AttributeError: it is not as in the protocol.
    """
    usage = answer.get("usage")
    if not usage or usage.get("prompt_tokens") is None or usage.get("completion_tokens") is None:
        return Usage(known=False)
    prompt, completion = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    cached = min(prompt, int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0))
    return Usage(prompt, cached, completion, prices.cost(prompt, cached, completion) if prices else None)


def read_reply(answer: Any, prices: PricesConfig | None, *, token_ids: bool) -> Reply:
    """The reply in a chat completion.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: it is not a chat completion.
    """
    choice = answer["choices"][0]
    message = _message(choice["message"])
    json.dumps(message, ensure_ascii=False).encode()  # half a surrogate pair could not be stored
    tokens, why = _tokens(answer, choice) if token_ids else (None, "the endpoint was not asked for token ids")
    return Reply(message, str(choice.get("finish_reason")), read_usage(answer, prices), tokens, why)


def _message(given: dict[str, Any]) -> Message:
    """The message without the reasoning, refusals and annotations that some endpoints add."""
    message: Message = {"role": "assistant", "content": given.get("content")}
    calls = [
        {
            "id": str(call["id"]),
            "type": "function",
            "function": {"name": str(call["function"]["name"]), "arguments": str(call["function"]["arguments"])},
        }
        for call in given.get("tool_calls") or []
    ]
    if calls:
        message["tool_calls"] = calls
    elif not isinstance(message["content"], str):
        message["content"] = ""
    return message


def _tokens(answer: Any, choice: Any) -> tuple[ReplyTokens | None, str]:
    """Ids and log-probabilities under the names of vLLM's server, or why there are none."""
    prompt_ids, token_ids = answer.get("prompt_token_ids"), choice.get("token_ids")
    if not prompt_ids or not token_ids:
        return None, "the endpoint gives no token ids"
    given = (choice.get("logprobs") or {}).get("content")
    if not given:
        return None, "the endpoint gives no log-probabilities"
    logprobs = [float(item["logprob"]) for item in given]
    if len(logprobs) != len(token_ids):
        return None, f"the endpoint gives {len(logprobs)} log-probabilities for {len(token_ids)} tokens"
    if not all(UNKNOWN_LOGPROB < logprob <= 0.0 for logprob in logprobs):
        return None, "the endpoint does not know the log-probability of every token"
    return ReplyTokens([int(i) for i in prompt_ids], [int(i) for i in token_ids], logprobs), ""


class BudgetReached(InfrastructureError):
    """Another request could exceed the budget."""


class Budget(Protocol):
    """What a request reserves before it is sent, and settles after."""

    def reserve(self, at_most: float) -> None:
        """Reserve the most that a request may cost.

        Raises:
            BudgetReached: there is no room.
        """
        ...

    def settle(self, at_most: float, cost: float) -> None:
        """Replace a reservation of `at_most` by the request's cost."""
        ...


class Spending:
    """The amount spent, and the most that open requests may cost.

    Args:
        budget: None for no limit.
        spent: The amount that earlier runs of the same command have spent.
    """

    def __init__(self, budget: float | None, spent: float = 0.0) -> None:
        self._budget, self._spent = budget, spent
        self._reserved, self._requests = 0.0, 0
        self._reached = False
        self._changed = threading.Condition()

    def reserve(self, at_most: float) -> None:
        """Reserve the most that a request may cost; wait while open requests may still turn out cheaper.

        Raises:
            BudgetReached: there is no room. From then on every reservation fails, so that a run stops at one point.
        """
        if self._budget is None:
            return
        with self._changed:
            while not self._reached and self._spent + self._reserved + at_most > self._budget and self._requests:
                self._changed.wait()
            if self._reached or self._spent + at_most + self._reserved > self._budget:
                self._reached = True
                self._changed.notify_all()
                raise BudgetReached(
                    f"the budget of {self._budget:g} is reached: {self._spent:.6g} is spent, "
                    f"and the next request may cost {at_most:.6g}"
                )
            self._reserved += at_most
            self._requests += 1

    def settle(self, at_most: float, cost: float) -> None:
        """Replace a reservation of `at_most` by the request's cost."""
        if self._budget is None:
            return
        with self._changed:
            self._requests -= 1
            self._reserved = self._reserved - at_most if self._requests else 0.0
            self._spent += cost
            self._changed.notify_all()
