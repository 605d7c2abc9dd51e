"""A model behind an OpenAI-compatible endpoint: where it is, how fast it may be asked, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from tracewheel.config.base import Count, NotNegative, Positive, Strict

# What has no bearing on what the model says.
HOW_ASKED = {
    "concurrency",
    "timeout",
    "retries",
    "longest_wait",
    "api_key_variable",
    "requests_per_minute",
    "tokens_per_minute",
    "prices",
    "budget",
}


class PricesConfig(Strict):
    """What a million tokens cost, in any currency. `cached_input` is for prompt tokens that the endpoint had in its cache."""

    input: NotNegative
    output: NotNegative
    cached_input: NotNegative | None = None

    def cost(self, prompt: int, cached: int, completion: int) -> float:
        """What a reply costs; the `cached` tokens are among those of the `prompt`."""
        known = self.input if self.cached_input is None else self.cached_input
        return ((prompt - cached) * self.input + cached * known + completion * self.output) / 1e6


class EndpointConfig(Strict):
    """A model behind an OpenAI-compatible endpoint.

    `endpoint` is the address that `/chat/completions` is added to. The key is read from the environment variable
    `api_key_variable`, and none is sent where there is none. `concurrency` episodes are played at once. A request that
    gets no answer within `timeout` seconds, or is put off, is repeated up to `retries` times, after as long as the
    endpoint asks to wait; when that is more than `longest_wait` seconds, it is given up. In no minute are more than
    `requests_per_minute` requests and `tokens_per_minute` tokens sent. With `prices` replies have a cost, and with a
    `budget`, in their currency, a command stops before it is passed.

    With `token_ids` the endpoint is asked for token ids and log-probabilities, which vLLM's server gives; they
    are taken to be of the distribution before the temperature, unless it says otherwise (`processed_logprobs`: vLLM's
    `--logprobs-mode processed_logprobs`). `extra` holds further fields of the request's body; a field set to null is
    left out of it. The number of turns is bounded by the profile's `rollout`.
    """

    endpoint: Annotated[str, Field(pattern=r"^https?://")]
    model: Annotated[str, Field(min_length=1)]
    api_key_variable: str = "OPENAI_API_KEY"
    temperature: NotNegative = 1.0
    max_turn_tokens: Count = 1024
    concurrency: Count = 8
    timeout: Positive = 60.0
    retries: Annotated[int, Field(ge=0)] = 4
    longest_wait: Positive = 300.0
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    prices: PricesConfig | None = None
    budget: Positive | None = None
    token_ids: bool = False
    processed_logprobs: bool = False
    extra: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _holds_together(self) -> EndpointConfig:
        if self.budget is not None and self.prices is None:
            raise ValueError("a budget needs prices to be kept: set prices.input and prices.output")
        for name in ("model", "messages", "tools", "stream", "n"):
            if self.extra.get(name) is not None:
                raise ValueError(f"extra.{name}: one whole reply is asked for, with fields of Tracewheel's own")
        return self
