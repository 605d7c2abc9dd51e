"""Asks a vendor's API over HTTP: retried with backoff, as slowly as the server wants, and bounded in size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from tracewheel import ConfigError, InfrastructureError, parse_json

TRIES = 6
LONGEST_WAIT = 120.0  # seconds
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
LARGEST = 128 << 20  # bytes of one answer, expanded
AGAIN = {408, 425, 429, 500, 502, 503, 504}
SHOWN = 300


class NoSuchPath(ConfigError):
    """The server does not know a path."""


class Api:
    """An API with JSON answers.

    Args:
        base: Its address; redirects are not followed, so that credentials go nowhere else.
        auth: User and password, or key and secret.
        variables: The variables of the environment that hold them, for messages.
    """

    def __init__(self, base: str, auth: tuple[str, str], variables: str) -> None:
        self._base, self._variables = base.rstrip("/"), variables
        self._client = httpx.Client(auth=auth, timeout=TIMEOUT, follow_redirects=False)

    def get(self, path: str, params: Mapping[str, str | int]) -> dict[str, Any]:
        """The JSON object at a path.

        Raises:
            ConfigError: the server refuses the credentials, or does not know the path.
            InfrastructureError: it does not answer, or not with an object of a bearable size.
        """
        for tried in range(1, TRIES + 1):
            try:
                status, headers, body = self._ask(path, params)
            except httpx.HTTPError as error:
                problem, wait = f"does not answer ({type(error).__name__})", None
            else:
                if status == 200:
                    return self._read(path, body)
                problem, wait = f"answers {status}: {body[:SHOWN].decode('utf-8', 'replace')}", _wait(headers)
                if status in (401, 403):
                    raise ConfigError(f"{self._base}: refuses the credentials ({status}); set {self._variables}")
                if status == 404:
                    raise NoSuchPath(f"{self._base}: has no {path}; is it the right server, and new enough?")
                if status not in AGAIN:
                    break
            if tried < TRIES:
                time.sleep(min(wait if wait is not None else 2.0 ** (tried - 1), LONGEST_WAIT))
        raise InfrastructureError(f"{self._base}{path}: {problem}")

    def _ask(self, path: str, params: Mapping[str, str | int]) -> tuple[int, httpx.Headers, bytes]:
        with self._client.stream("GET", f"{self._base}{path}", params=dict(params)) as response:
            body = bytearray()
            for block in response.iter_bytes():
                body += block
                if len(body) > LARGEST:
                    raise InfrastructureError(f"{self._base}{path}: answers with more than {LARGEST >> 20} MiB")
            return response.status_code, response.headers, bytes(body)

    def _read(self, path: str, body: bytes) -> dict[str, Any]:
        try:
            found = parse_json(body)
        except ValueError as error:
            raise InfrastructureError(f"{self._base}{path}: answers with no JSON ({error})") from error
        if not isinstance(found, dict):
            raise InfrastructureError(f"{self._base}{path}: answers with a {type(found).__name__}, not an object")
        return found

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _wait(headers: httpx.Headers) -> float | None:
    """The seconds that `Retry-After` asks for, as a number or a date."""
    asked = headers.get("retry-after", "")
    try:
        return max(float(asked), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(asked).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None
