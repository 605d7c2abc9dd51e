"""A model behind an OpenAI-compatible endpoint: messages in, one assistant message out.

It is no `Engine`: an endpoint takes and gives text, so what it says has no token ids and no
log-probabilities of the policy's. It serves as a teacher, whose episodes are imitated.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass
from typing import Any

import httpx

from tracewheel.config import TeacherConfig
from tracewheel.errors import InfrastructureError, InputError

Message = dict[str, Any]
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
PUT_OFF = {408, 409, 425, 429}
NOT_FOR_US = {401, 403, 404, 405}
SHOWN = 300


class RefusedRequest(InfrastructureError):
    """The endpoint works, but not for this conversation: it is too long for it, say."""


@dataclass(frozen=True)
class Reply:
    """An assistant message as OpenAI logs have it, why it ended, and what it cost in the endpoint's own tokens."""

    message: Message
    ended_by: str
    prompt_tokens: int
    completion_tokens: int


class OpenAiChat:
    """Asks one model. May be used by many threads at once; use it as a context manager, or close it.

    Args:
        config: Where it is, and how often to ask again.
        first_wait: Seconds before the second try; doubled before each further one.
    """

    def __init__(self, config: TeacherConfig, *, first_wait: float = FIRST_WAIT) -> None:
        self._config = config
        self._first_wait = first_wait
        self._url = config.endpoint.rstrip("/") + "/chat/completions"
        key = os.environ.get(config.api_key_variable)
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=config.timeout,
            limits=httpx.Limits(max_connections=config.concurrency),
        )

    def __enter__(self) -> OpenAiChat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def complete(self, messages: list[Message], tools: list[dict[str, Any]], seed: int) -> Reply:
        """What the model says next.

        Raises:
            InputError: the endpoint, the model or the key is wrong: no request will fare better.
            RefusedRequest: the endpoint will not take this conversation.
            InfrastructureError: no usable answer, however often it was asked.
        """
        body = {
            "model": self._config.model,
            "messages": messages,
            "tools": tools,
            "temperature": self._config.temperature,
            "max_tokens": self._config.max_turn_tokens,
            "seed": seed % 2**31,
            **self._config.extra,
        }
        body = {name: value for name, value in body.items() if value is not None}
        wait, problem = self._first_wait, ""
        for attempt in range(self._config.retries + 1):
            try:
                response = self._client.post(self._url, json=body)
            except httpx.InvalidURL as error:
                raise InputError(f"teacher.endpoint: {self._config.endpoint}: {error}") from error
            except httpx.TransportError as error:
                problem, asked_wait = f"{type(error).__name__}: {error}", None
            else:
                if response.is_success:
                    return _reply(response)
                problem, asked_wait = f"status {response.status_code}: {_said(response)}", _retry_after(response)
                self._raise_if_final(response, problem)
            if attempt < self._config.retries:
                # Apart, so that threads which were refused together do not come back together.
                time.sleep(min(LONGEST_WAIT, max(asked_wait or 0.0, wait * random.uniform(0.5, 1.0))))
                wait *= 2
        raise InfrastructureError(f"{self._url}: no answer after {self._config.retries + 1} tries; the last: {problem}")

    def _raise_if_final(self, response: httpx.Response, problem: str) -> None:
        status = response.status_code
        if status in NOT_FOR_US:
            advice = {
                401: f"is the key in the environment variable {self._config.api_key_variable} right?",
                403: f"may the key in the environment variable {self._config.api_key_variable} use teacher.model?",
            }.get(status, "are teacher.endpoint (it mostly ends in /v1) and teacher.model right?")
            raise InputError(f"{self._url}: {problem}; {advice}")
        if status < 500 and status not in PUT_OFF:
            raise RefusedRequest(f"{self._url}: {problem}")


def _reply(response: httpx.Response) -> Reply:
    try:
        answer = response.json()
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = _message(choice["message"])
        json.dumps(message, ensure_ascii=False).encode()  # half a surrogate pair could not be stored
        return Reply(
            message,
            str(choice.get("finish_reason")),
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise RefusedRequest(
            f"{response.url}: the answer is no chat completion ({type(error).__name__}: {error}): {response.text[:SHOWN]}"
        ) from error


def _message(said: dict[str, Any]) -> Message:
    """What belongs to the conversation: not the reasoning, refusals or annotations that some endpoints add."""
    message: Message = {"role": "assistant", "content": said.get("content")}
    calls = [
        {
            "id": str(call["id"]),
            "type": "function",
            "function": {"name": str(call["function"]["name"]), "arguments": str(call["function"]["arguments"])},
        }
        for call in said.get("tool_calls") or []
    ]
    if calls:
        message["tool_calls"] = calls
    elif not isinstance(message["content"], str):
        message["content"] = ""
    return message


def _said(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        text = response.text
    return " ".join(str(text).split())[:SHOWN]


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds that the endpoint asks to wait; a date is passed over."""
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
