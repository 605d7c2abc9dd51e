"""The teacher's part of a profile."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tracewheel.config.base import Count, NotNegative, Positive, Strict


class TeacherConfig(Strict):
    """A teacher behind an OpenAI-compatible endpoint, which plays the training tasks (`tracewheel teach`).

    `endpoint` is the address that `/chat/completions` is added to. The key is read from the environment
    variable `api_key_variable`, and none is sent where there is none. Each task is played `samples` times,
    `concurrency` episodes at once. A request that gets no answer within `timeout` seconds, or is put off, is
    repeated up to `retries` times. `extra` holds further fields of the request's body; a field set to null is
    left out of it. Turns, and the length a demonstration may have, are bounded by the profile's `rollout`.
    """

    endpoint: Annotated[str, Field(pattern=r"^https?://")]
    model: Annotated[str, Field(min_length=1)]
    api_key_variable: str = "OPENAI_API_KEY"
    samples: Count = 4
    temperature: NotNegative = 1.0
    max_turn_tokens: Count = 1024
    concurrency: Count = 8
    timeout: Positive = 60.0
    retries: Annotated[int, Field(ge=0)] = 4
    extra: dict[str, Any] = Field(default_factory=dict)
