"""A model behind an OpenAI-compatible endpoint: messages in, one assistant message out.

Not an `Engine`: the endpoint tokenises messages itself. It serves as a teacher, a judge or a baseline. If the server
returns token ids and log-probabilities, a reply carries them.

Not the openai client either: limits, budget and pauses hold for each try and for all threads together, so retries are
ours in any case, and the client would replace little more than one POST.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tracewheel.config import EndpointConfig
from tracewheel.core.errors import InfrastructureError, InputError
from tracewheel.engines.chat_reply import Budget, Message, Reply, Spending, read_reply
from tracewheel.engines.rate_limit import MINUTE, RateLimiter, exhausted_for, retry_after


class HttpConnections:
    """Lends clients, each with a connection of its own that stays open between requests.

    Threads that share one client of httpx can close each other's connection: a thread that looks for idle ones takes a
    fast answer on a connection that another thread has begun to use for the end of that connection.

    Args:
        make: Makes a client.
        most: How many requests run at once; a further one waits.
    """

    def __init__(self, make: Callable[[], httpx.Client], most: int) -> None:
        self._make = make
        self._running = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._all: list[httpx.Client] = []
        self._idle: list[httpx.Client] = []
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[httpx.Client]:
        """A client for one request.

        Raises:
            httpx.TransportError: the connections are closed.
        """
        with self._running:
            with self._lock:
                if self._closed:
                    raise httpx.TransportError("the connections are closed")
                if not self._idle:
                    self._all.append(self._make())
                    self._idle.append(self._all[-1])
                client = self._idle.pop()  # the last one used, so that the fewest connections stay open
            try:
                yield client
            finally:
                with self._lock:
                    self._idle.append(client)

    def close(self) -> None:
        """Close all connections; requests that wait or are under way fail."""
        with self._lock:
            self._closed = True
            for client in self._all:
                client.close()


FIRST_WAIT, LONGEST_BACKOFF = 0.5, 30.0  # seconds
LONGEST_WAIT = 300.0  # seconds that an endpoint may ask for
RETRIED = {408, 409, 425, 429}  # and all of 500 and above
MISCONFIGURED = {401, 403, 404, 405}
TOO_LONG = ("context_length_exceeded", "maximum context length")
EXCERPT = 300  # characters of a server's message in ours
TOKEN_MARGIN = 1.25  # how many times more tokens per byte the next prompt may have than the densest so far


class RefusedRequest(InfrastructureError):
    """The endpoint works, but refuses this conversation."""


class TooLong(RefusedRequest):
    """The conversation is longer than the model's context."""


class OpenAiChat:
    """Requests to one model, from any number of threads. Use it as a context manager, or close it.

    Args:
        config: The endpoint, its retries and its limits.
        spent: What earlier runs have spent of the budget.
        spending: Keeps the budget instead of the configured one, as one that several clients share.
        first_wait: Seconds before the second try, doubled for each further one.
        minute: The period of the limits by the minute, in seconds.

    Attributes:
        counts: Requests `sent`, how many of them were `repeated`, and how many got `no_answer`, which may still have
            a cost.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        spent: float = 0.0,
        spending: Budget | None = None,
        first_wait: float = FIRST_WAIT,
        minute: float = MINUTE,
    ) -> None:
        self.counts: Counter[str] = Counter(sent=0, repeated=0, no_answer=0)
        self._config = config
        self._first_wait = first_wait
        self._url = config.endpoint.rstrip("/") + "/chat/completions"
        key = os.environ.get(config.api_key_variable)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        trusted = httpx.create_ssl_context()  # takes longer to make than a client
        self._connections = HttpConnections(
            lambda: httpx.Client(headers=headers, timeout=config.timeout, verify=trusted), config.concurrency
        )
        self._limiter = RateLimiter(config.requests_per_minute, config.tokens_per_minute, period=minute)
        self._spending = spending or Spending(config.budget, spent)
        self._closed = threading.Event()
        self._counting = threading.Lock()
        self._tokens_per_byte = 0.0

    def __enter__(self) -> OpenAiChat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; waiting requests fail."""
        self._closed.set()
        self._limiter.close()
        self._connections.close()

    def complete(
        self, messages: list[Message], tools: list[dict[str, Any]], seed: int, temperature: float | None = None
    ) -> Reply:
        """The model's next message.

        Args:
            temperature: Overrides the configured one; 0 takes the most likely token each time.

        Raises:
            InputError: the endpoint, the model or the key is wrong, so every request would fail.
            RefusedRequest: the endpoint refuses this conversation (`TooLong`: because of its length).
            BudgetReached: the reply could cost more than is left of the budget.
            InfrastructureError: no usable answer after all retries.
        """
        body = self._body(messages, tools, seed, self._config.temperature if temperature is None else temperature)
        backoff, problem = self._first_wait, ""
        for attempt in range(self._config.retries + 1):
            response, problem = self._send(body)
            pause = None
            if response is not None:
                if response.is_success:
                    return self._read(response, body)
                problem, pause = f"status {response.status_code}: {_message(response)}", retry_after(response.headers)
                self._raise_if_final(response, problem)
            if pause is not None and pause > LONGEST_WAIT:
                limit = LONGEST_WAIT
                raise InfrastructureError(
                    f"{self._url}: {problem}; it asks to wait {pause:.0f} s, {limit:g} s is the longest that is waited"
                )
            if attempt < self._config.retries:
                self._count("repeated")
                if pause:
                    self._limiter.pause(pause)  # it holds for all requests with the same key
                # Jitter: threads that were refused together do not return together.
                self._closed.wait(min(LONGEST_BACKOFF, backoff * random.uniform(0.5, 1.0)))
                backoff *= 2
        raise InfrastructureError(f"{self._url}: no answer after {self._config.retries + 1} tries; last error: {problem}")

    def _body(self, messages: list[Message], tools: list[dict[str, Any]], seed: int, temperature: float) -> dict[str, Any]:
        body = {
            "model": self._config.model,
            "messages": messages,
            "tools": tools or None,
            "temperature": temperature,
            "max_tokens": self._config.max_turn_tokens,
            "seed": seed % 2**31,
            **({"logprobs": True, "return_token_ids": True} if self._config.token_ids else {}),
            **self._config.extra,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _send(self, body: dict[str, Any]) -> tuple[httpx.Response | None, str]:
        """Send once, within the limits and the budget: the response, or None and the error."""
        content = json.dumps(body, ensure_ascii=False).encode()
        longest = int(body.get("max_completion_tokens") or body.get("max_tokens") or self._config.max_turn_tokens)
        prices = self._config.prices
        # An upper bound: no tokeniser makes more tokens of a text than it has bytes.
        at_most = prices.cost(len(content), 0, longest) if prices else 0.0
        self._spending.reserve(at_most)
        cost = at_most  # a request without an answer may have been served all the same
        try:
            # At first a token per byte; replies then show the true ratio.
            expected = longest + round(len(content) * min(1.0, (self._tokens_per_byte * TOKEN_MARGIN) or 1.0))
            sent = self._limiter.acquire(expected)
            self._count("sent")
            try:
                with self._connections.lend() as client:
                    response = client.post(self._url, content=content)
            except httpx.InvalidURL as error:
                cost = 0.0
                raise InputError(f"endpoint: {self._config.endpoint}: {error}") from error
            except httpx.TransportError as error:
                self._count("no_answer")
                return None, f"{type(error).__name__}: {error}"
            tokens, cost = self._tokens_and_cost(response, len(content), at_most)
            self._limiter.settle(sent, tokens if tokens is not None else expected)
            pause = exhausted_for(response.headers, tokens or expected)
            if pause <= LONGEST_WAIT:
                self._limiter.pause(pause)
            return response, ""
        finally:
            self._spending.settle(at_most, cost)

    def _tokens_and_cost(self, response: httpx.Response, size: int, at_most: float) -> tuple[int | None, float]:
        """The tokens (None if not reported) and the cost of a response to a request of `size` bytes."""
        if not response.is_success:
            return 0, 0.0
        try:
            usage = read_reply(response.json(), self._config.prices, token_ids=False).usage
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None, at_most
        if not usage.known:
            return None, at_most
        self._tokens_per_byte = max(self._tokens_per_byte, usage.prompt_tokens / size)
        return usage.prompt_tokens + usage.completion_tokens, usage.cost or 0.0

    def _read(self, response: httpx.Response, body: dict[str, Any]) -> Reply:
        try:
            reply = read_reply(response.json(), self._config.prices, token_ids=self._config.token_ids)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise RefusedRequest(
                f"{response.url}: not a chat completion ({type(error).__name__}: {error}): {response.text[:EXCERPT]}"
            ) from error
        if self._config.budget is not None and not reply.usage.known:
            raise InputError(f"{self._url}: model {body['model']} reports no usage, so no budget can be kept: unset it")
        return reply

    def _raise_if_final(self, response: httpx.Response, problem: str) -> None:
        status = response.status_code
        if status in MISCONFIGURED:
            advice = {
                401: f"is the key in the environment variable {self._config.api_key_variable} right?",
                403: f"may the key in the environment variable {self._config.api_key_variable} use this model?",
            }.get(status, "are endpoint (it usually ends in /v1) and model right?")
            raise InputError(f"{self._url}: {problem}; {advice}")
        if status < 500 and status not in RETRIED:
            kind = TooLong if any(words in response.text for words in TOO_LONG) else RefusedRequest
            raise kind(f"{self._url}: {problem}")

    def _count(self, name: str) -> None:
        with self._counting:
            self.counts[name] += 1


def _message(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        text = response.text
    return " ".join(str(text).split())[:EXCERPT]
