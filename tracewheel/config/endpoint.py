"""A model behind an OpenAI-compatible endpoint: where it is, how fast it may be asked, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from tracewheel.config.base import Count, NotNegative, Positive, Strict

# Settings that do not influence what the model replies.
HOW_ASKED = {
    "concurrency",
    "timeout",
    "retries",
    "api_key_variable",
    "requests_per_minute",
    "tokens_per_minute",
    "prices",
    "budget",
}


class PricesConfig(Strict):
    """Prices of a million tokens, in any currency. `cached_input` is the price of prompt tokens from the endpoint's cache."""

    input: NotNegative
    output: NotNegative
    cached_input: NotNegative | None = None

    def cost(self, prompt: int, cached: int, completion: int) -> float:
        """The cost of a reply; `prompt` includes the `cached` tokens."""
        known = self.input if self.cached_input is None else self.cached_input
        return ((prompt - cached) * self.input + cached * known + completion * self.output) / 1e6


class EndpointConfig(Strict):
    """A model behind an OpenAI-compatible endpoint.

    `/chat/completions` is appended to `endpoint`. The key is read from the environment variable `api_key_variable`; if
    that is unset, no key is sent. `concurrency` episodes are played at once. A request without an answer after `timeout`
    seconds, or with a retryable error, is repeated up to `retries` times, after the wait that the endpoint asks for. A
    wait of more than 300 seconds is an error. At most `requests_per_minute` requests and `tokens_per_minute` tokens are
    sent in any minute. `prices` give replies a cost; a command stops before the cost exceeds `budget`.

    `token_ids` asks the endpoint for token ids and log-probabilities, which vLLM's server returns. They are taken before
    the temperature is applied, unless `processed_logprobs` is set (vLLM's `--logprobs-mode processed_logprobs`). `extra`
    holds further fields of the request body; null removes a field. The profile's `rollout` bounds the number of turns.
    """

    endpoint: Annotated[str, Field(pattern=r"^https?://")]
    model: Annotated[str, Field(min_length=1)]
    api_key_variable: str = "OPENAI_API_KEY"
    temperature: NotNegative = 1.0
    max_turn_tokens: Count = 1024
    concurrency: Count = 8
    timeout: Positive = 60.0
    retries: Annotated[int, Field(ge=0)] = 4
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    prices: PricesConfig | None = None
    budget: Positive | None = None
    token_ids: bool = False
    processed_logprobs: bool = False
    extra: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_budget_and_extra(self) -> EndpointConfig:
        if self.budget is not None and self.prices is None:
            raise ValueError("a budget needs prices: set prices.input and prices.output")
        for name in ("model", "messages", "tools", "stream", "n"):
            if self.extra.get(name) is not None:
                raise ValueError(f"extra.{name}: set by Tracewheel, which asks for one whole reply")
        return self


class TeacherConfig(EndpointConfig):
    """A teacher behind an endpoint, which plays each training task `samples` times (`tracewheel teach`).

    The profile's `rollout` bounds the length of a demonstration.
    """

    samples: Count = 4
