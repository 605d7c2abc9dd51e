"""Who asks, what they sent, and how they are refused."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tracewheel.core.strict_json import parse_json
from tracewheel.gateway.dialects.chat import ChatCompletions
from tracewheel.gateway.dialects.dialect import DIALECTS, Dialect, Said
from tracewheel.gateway.exchange import Door, Refusal
from tracewheel.gateway.off_loop import off_loop

SESSION_HEADER, USER_HEADER = "x-tracewheel-session", "x-tracewheel-user"
KEYS = ("x-api-key", "x-goog-api-key")
LONGEST = 200  # characters of a name


@dataclass(frozen=True)
class Asker:
    """The names that a request gives; None without."""

    session: str | None = None
    user: str | None = None


ASKER: ContextVar[Asker] = ContextVar("asker")  # of the request that is being answered


def asker_of(headers: Mapping[str, str], body: Any) -> Asker:
    """Read the headers, and the vendors' fields for the end user: `user`, `safety_identifier`, `metadata.user_id`."""
    fields = body if isinstance(body, dict) else {}
    metadata = fields.get("metadata")
    of_metadata = metadata.get("user_id") if isinstance(metadata, dict) else None
    users = (headers.get(USER_HEADER), fields.get("user"), fields.get("safety_identifier"), of_metadata)
    return Asker(_name(headers.get(SESSION_HEADER)), next((name for name in map(_name, users) if name), None))


def _name(value: Any) -> str | None:
    return value[:LONGEST] if isinstance(value, str) and value else None


LISTS = ("messages", "input", "contents", "tools")
VALUES, OPENINGS = 500_000, (b"{", b"[", b",")  # parsing so many takes 60 ms, in which no other thread runs
PROGRAMS = 2_000  # keys, more than programs run at once, whose sayings are kept; the one that asked least recently goes first
RETRY_SOON = 1.0  # seconds, where the door is overloaded and names no time


@dataclass(frozen=True)
class Limits:
    """What a request may take.

    Attributes:
        body: The most bytes of a body.
        messages: The most messages of a conversation, and the most tools.
        whole: Seconds in which a request must have come whole, from its connection's beginning or its first byte.
        patience: Seconds that a stream waits with its status for the reply, so that a refusal has one of its own.
        silence: Seconds between signs of life until the reply is there.
    """

    body: int = 8 << 20
    messages: int = 10_000
    whole: float = 30.0
    patience: float = 1.0
    silence: float = 2.0

    def check_count(self, name: str, listed: Sequence[Any]) -> None:
        """Check the length of a list.

        Raises:
            Refusal: it is too long.
        """
        if len(listed) > self.messages:
            raise Refusal("too_large", f"'{name}' has {len(listed)} entries, and {self.messages} is the most.", name)


class Knowledge:
    """What each key was told."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Said] = OrderedDict()

    def of(self, key: str) -> Said:
        """What was said to a key."""
        said = self._of.setdefault(key, Said())
        self._of.move_to_end(key)
        while len(self._of) > PROGRAMS:
            self._of.popitem(last=False)
        return said


def request_id(request: Request) -> str:
    """The request's id, the same each time."""
    if not hasattr(request.state, "id"):
        request.state.id = f"req_{uuid.uuid4().hex}"
    return str(request.state.id)


def id_headers(request: Request) -> dict[str, str]:
    """The request's id as the vendors name it."""
    return {"x-request-id": request_id(request), "request-id": request_id(request)}


def dialect_of(request: Request) -> Dialect:
    """The dialect of a path that all share, by what the client says of itself."""
    kinds: list[type[Dialect]] = [DIALECTS[name] for name in DIALECTS]
    return next((kind() for kind in kinds if kind.speaks(request.url.path, request.headers)), ChatCompletions())


def check_key(door: Door, request: Request) -> str:
    """The key of a request.

    Raises:
        Refusal: it has none, or may not ask at this URL.
    """
    bearer = request.headers.get("authorization", "")
    key = next((request.headers[name] for name in KEYS if request.headers.get(name)), "") or request.query_params.get("key", "")
    key = key or (bearer[7:].strip() if bearer[:7].lower() == "bearer " else "")
    if not key:
        wanted = f"send it as a bearer token, as {' or '.join(KEYS)}"
        raise Refusal("authentication", f"You did not provide an API key: {wanted}.")
    if not door.admits(key, request.path_params.get("episode")):
        raise Refusal("authentication", f"Incorrect API key provided: {_masked(key)}.")
    return key


def has_key(door: Door, request: Request) -> bool:
    """Whether a request has a key that may ask here."""
    try:
        return bool(check_key(door, request))
    except Refusal:
        return False


def _masked(key: str) -> str:
    return f"{key[:3]}***{key[-2:]}" if len(key) > 12 else "***"


async def read_body(request: Request, limits: Limits) -> Any:
    """The JSON value that was sent.

    Raises:
        Refusal: it is larger than the limits, or not JSON.
    """
    too_large = Refusal("too_large", f"Request exceeds the maximum size of {limits.body} bytes.")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limits.body):
        raise too_large
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limits.body:
            raise too_large
    coding = request.headers.get("content-encoding", "").lower()
    if len(raw) <= AT_ONCE and not coding:
        return parse_body(bytes(raw), limits)
    return await off_loop(lambda: parse_body(_unpacked(bytes(raw), coding, limits), limits))


AT_ONCE = 32 << 10  # bytes: to parse so many takes less than to hand them to another thread
PACKED = {"gzip": "gzip", "zstd": "zstd", "br": "brotli"}


def _unpacked(raw: bytes, coding: str, limits: Limits) -> bytes:
    """A body as it was before it was compressed; no more of it is unpacked than may be sent.

    Raises:
        Refusal: nobody knows the coding, the body is not in it, or it is larger than the limits.
    """
    if coding in ("", "identity"):
        return raw
    if coding not in PACKED:
        raise Refusal("invalid_request", f"Unknown content-encoding {coding!r:.40}; known are {', '.join(PACKED)}.")
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(raw), PACKED[coding]) as stream:
            unpacked = bytes(stream.read(limits.body + 1))
    except OSError as error:
        raise Refusal("invalid_request", f"We could not unpack the body of your request: {error!s:.200}.") from None
    if len(unpacked) > limits.body:
        raise Refusal("too_large", f"Request exceeds the maximum size of {limits.body} bytes.")
    return unpacked


def parse_body(raw: bytes, limits: Limits) -> Any:
    """The JSON value in bytes. They are counted before they are parsed, because no other thread runs meanwhile.

    Raises:
        Refusal: it holds too much, or is not JSON.
    """
    if sum(map(raw.count, OPENINGS)) > VALUES:
        raise Refusal("too_large", f"Request has over {VALUES} values; send fewer, shorter messages.")
    try:
        value = parse_json(raw.decode())
    except ValueError as error:  # not UTF-8 is one, too
        raise Refusal("invalid_request", f"We could not parse the JSON body of your request: {error!s:.200}.") from None
    for name in LISTS if isinstance(value, dict) else ():
        if isinstance(value.get(name), list):
            limits.check_count(name, value[name])
    return value


def refused(request: Request, dialect: Dialect, refusal: Refusal, status: int | None = None) -> Response:
    """A refusal in its dialect, with whether asking again is of use."""
    wait = RETRY_SOON if refusal.kind == "overloaded" and refusal.retry_after is None else refusal.retry_after
    headers = {**id_headers(request), "x-should-retry": "false" if wait is None else "true"}
    if wait is not None:
        headers["retry-after"] = f"{wait:g}"
    body = dialect.error(refusal, request_id(request))
    return JSONResponse(body, dialect.status(refusal) if status is None else status, headers)
