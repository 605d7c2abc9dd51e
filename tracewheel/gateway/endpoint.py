"""Asks the door for a turn and sends it, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tracewheel.core import clock
from tracewheel.gateway.asking import ASKER, Knowledge, Limits, asker_of, check_key, id_headers, read_body, refused, request_id
from tracewheel.gateway.dialects.dialect import Asked, Dialect, Event, Said
from tracewheel.gateway.exchange import ChatReply, Door, HearsRefusals, Refusal
from tracewheel.gateway.off_loop import begin_request, off_loop

LOG = logging.getLogger(__name__)
STREAM = (b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")


class Endpoint:
    """The ASGI application of one dialect's path."""

    def __init__(self, door: Door, dialect: Dialect, known: Knowledge, limits: Limits) -> None:
        self._door, self._dialect, self._known, self._limits = door, dialect, known, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Where its client goes away, the door's work is cancelled."""
        request = Request(scope, receive)
        begin_request()
        key = ""
        try:
            key = check_key(self._door, request)
            said = self._known.of(key)
            body = await read_body(request, self._limits)
            asked = await off_loop(self._read, body, said)
        except Refusal as refusal:
            if key and isinstance(self._door, HearsRefusals):
                self._door.refused(key, refusal)
            await refused(request, self._dialect, refusal)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        created = int(clock.now().timestamp())
        ASKER.set(asker_of(request.headers, body))  # the tasks that are begun from here on see it
        work = asyncio.ensure_future(self._replies(key, asked, said, created))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await self._send(_Turn(request, asked, created, work, gone), send)
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _read(self, body: Any, said: Said) -> Asked:
        asked = self._dialect.read(body, said)
        self._limits.check_count("messages", asked.request.messages)
        messages = said.restored(asked.request.messages)
        return dataclasses.replace(asked, request=dataclasses.replace(asked.request, messages=messages))

    async def _replies(self, key: str, asked: Asked, said: Said, created: int) -> list[ChatReply]:
        """All answers to a request; each further one has the next seed."""
        seed = asked.request.seed
        requests = [
            dataclasses.replace(asked.request, seed=None if seed is None else seed + number) for number in range(asked.answers)
        ]
        tasks = [asyncio.ensure_future(self._door.answer(key, request)) for request in requests]
        try:
            replies = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
        self._dialect.remember(asked, replies, created, said)
        return replies

    async def _send(self, turn: _Turn, send: Send) -> None:
        await turn.wait(self._limits.patience if turn.asked.stream else None)
        if turn.is_dropped:
            return
        if turn.asked.stream and not turn.work.done():
            await self._send_late(turn, send)
            return
        scope, receive = turn.request.scope, turn.request.receive
        try:
            replies = turn.work.result()
        except Refusal as refusal:
            await refused(turn.request, self._dialect, refusal)(scope, receive, send)
            return
        if turn.asked.stream:
            await _begin(turn.request, send)
            await self._end(turn, replies, send)
        else:
            body = self._dialect.write(turn.asked, replies, turn.created)
            await JSONResponse(body, headers=id_headers(turn.request))(scope, receive, send)

    async def _send_late(self, turn: _Turn, send: Send) -> None:
        """Begin a stream before its reply is there; what goes wrong from now on is an event."""
        await _begin(turn.request, send)
        while not turn.work.done():
            await send({"type": "http.response.body", "body": self._dialect.KEEP_ALIVE, "more_body": True})
            await turn.wait(self._limits.silence)
            if turn.is_dropped:
                return
        try:
            replies = turn.work.result()
        except Refusal as refusal:
            await self._fail(turn, refusal, send)
        except Exception:
            # Anything of the door or engine: the stream has begun, so that no handler could answer any more.
            LOG.exception("a turn failed after its stream had begun")
            await self._fail(turn, Refusal("server_error", "The server had an error."), send)
        else:
            await self._end(turn, replies, send)

    async def _fail(self, turn: _Turn, refusal: Refusal, send: Send) -> None:
        await _close(send, _encoded([self._dialect.error_event(refusal, request_id(turn.request))]))

    async def _end(self, turn: _Turn, replies: Sequence[ChatReply], send: Send) -> None:
        end = b"" if self._dialect.END is None else f"data: {self._dialect.END}\n\n".encode()
        await _close(send, _encoded(self._dialect.events(turn.asked, replies, turn.created)) + end)


@dataclass(frozen=True)
class _Turn:
    """A turn that is waited for: the door's work, and whether the client has gone."""

    request: Request
    asked: Asked
    created: int
    work: asyncio.Future[list[ChatReply]]
    gone: asyncio.Future[None]

    async def wait(self, seconds: float | None) -> None:
        """Wait for the reply, for the client to go, or at most some seconds."""
        await asyncio.wait((self.work, self.gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    @property
    def is_dropped(self) -> bool:
        """Whether nobody waits for the reply any more."""
        return self.gone.done() and not self.work.done()


async def _disconnected(receive: Receive) -> None:
    """Wait until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(request: Request, send: Send) -> None:
    own = [(name.encode(), value.encode()) for name, value in id_headers(request).items()]
    await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *own]})


async def _close(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _encoded(events: Sequence[Event]) -> bytes:
    texts = []
    for event in events:
        name = "" if event.name is None else f"event: {event.name}\n"
        texts.append(f"{name}data: {json.dumps(event.data, ensure_ascii=False, separators=(',', ':'))}\n\n")
    return "".join(texts).encode()
