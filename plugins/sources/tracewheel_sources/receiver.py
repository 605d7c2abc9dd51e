"""Receives OTLP over HTTP, as protobuf and JSON, and logs what tells of an agent's conversations.

A line of the log is an OTLP export of one trace's spans or log records, without secrets and personal data, which the format
`otel` reads. Other spans and records are taken and dropped. Answers are those of the specification:
https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tracewheel import ConversationLog, Redactor, SecretError, parse_json
from tracewheel_logs import identity_keys, is_event, is_span, of_agent

LARGEST = 32 << 20  # bytes of a body, expanded too
PROTOBUF, JSON = "application/x-protobuf", "application/json"
IDS = ("traceId", "spanId", "parentSpanId")
KEPT = (*IDS, "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "observedTimeUnixNano", "kind", "eventName")
INVALID, UNAUTHENTICATED, RESOURCE_EXHAUSTED, UNAVAILABLE = 3, 16, 8, 14  # codes of google.rpc
RETRY_SECONDS = "10"
Value = dict[str, Any]


class Signal(NamedTuple):
    """What is sent to one path: the names of its lists, and its messages."""

    path: str
    resources: str
    scopes: str
    items: str
    request: type[Message]
    response: type[Message]


SIGNALS = (
    Signal("/v1/traces", "resourceSpans", "scopeSpans", "spans", ExportTraceServiceRequest, ExportTraceServiceResponse),
    Signal("/v1/logs", "resourceLogs", "scopeLogs", "logRecords", ExportLogsServiceRequest, ExportLogsServiceResponse),
)


class Refused(Exception):
    """A request that cannot be taken, with the status and code of its answer."""

    def __init__(self, status: int, code: int, says: str) -> None:
        super().__init__(says)
        self.status, self.code = status, code


class Receiver:
    """Takes exports and writes their lines; may be called from any thread.

    Args:
        log: Where lines go.
        redactor: Redacts them.
        key: What senders must show.

    Attributes:
        kept: How many spans and records were logged.
        dropped: How many told of no agent.
    """

    def __init__(self, log: ConversationLog, redactor: Redactor, key: str) -> None:
        self._log, self._redactor, self._key, self._lock = log, redactor, key, threading.Lock()
        self._identities = identity_keys()
        self.kept = self.dropped = 0

    def app(self) -> Starlette:
        """The application."""

        def route(signal: Signal) -> Route:
            async def endpoint(request: Request) -> Response:
                return await self._answer(request, signal)

            return Route(signal.path, endpoint, methods=["POST"])

        async def health(request: Request) -> Response:
            return Response('{"status":"ok"}', media_type=JSON)

        return Starlette(routes=[*map(route, SIGNALS), Route("/health", health)])

    async def _answer(self, request: Request, signal: Signal) -> Response:
        sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        kind = sent if sent in (PROTOBUF, JSON) else PROTOBUF
        try:
            if not self._may(request):
                raise Refused(401, UNAUTHENTICATED, "send the key that the receiver printed: authorization: Bearer KEY")
            if sent not in (PROTOBUF, JSON):
                raise Refused(415, INVALID, f"send {PROTOBUF} or {JSON}")
            body = await _read(request)
            rejected, why = await asyncio.to_thread(self._take, body, request.headers.get("content-encoding", ""), kind, signal)
        except Refused as error:
            headers = {"Retry-After": RETRY_SECONDS} if error.status == 503 else {}
            return Response(_written(Status(code=error.code, message=str(error)), kind), error.status, headers, kind)
        except ClientDisconnect:
            return Response(status_code=400)
        answer = signal.response()
        if rejected:
            partial = answer.partial_success
            setattr(partial, "rejected_spans" if signal.items == "spans" else "rejected_log_records", rejected)
            partial.error_message = why
        return Response(_written(answer, kind), media_type=kind)

    def _may(self, request: Request) -> bool:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), self._key.encode())

    def _take(self, body: bytes, encoding: str, kind: str, signal: Signal) -> tuple[int, str]:
        """Log what a body holds; returns how many of it are rejected, and why."""
        found: dict[str, list[Value]] = {}
        rejected, why = 0, ""
        for item in _items(_parsed(_expanded(body, encoding), kind, signal), signal):
            if not (is_span(item) if signal.items == "spans" else is_event(item)):
                if signal.items == "spans" or str(item.get("eventName", "")).startswith("gen_ai."):
                    rejected, why = rejected + 1, "without a trace id, a span id or a name"
                else:
                    self.dropped += 1
            elif of_agent(item):
                found.setdefault(str(item["traceId"]), []).append(item)
            else:
                self.dropped += 1
        for together in found.values():
            try:
                with self._lock:
                    safe = [self._redacted(item) for item in together]
            except (SecretError, TypeError) as error:  # of a type: half of a surrogate pair, or a number beyond 64 bits
                rejected, why = rejected + len(together), str(error)
                continue
            try:
                self._log.write({signal.resources: [{signal.scopes: [{signal.items: safe}]}]})
            except OSError as error:
                raise Refused(503, UNAVAILABLE, f"the log cannot be written: {error.strerror}") from error
            self.kept += len(safe)
        return rejected, why

    def _redacted(self, item: Value) -> Value:
        """A span or record without secrets and personal data; its ids and times stay."""
        before = len(self._redactor.learned)
        for attribute in item.get("attributes") or ():
            label = self._identities.get(attribute.get("key", "")) if isinstance(attribute, dict) else None
            value = attribute.get("value") if label else None
            if label and isinstance(value, dict) and isinstance(value.get("stringValue"), str):
                value["stringValue"] = self._redactor.identity(label, value["stringValue"])
        rest = {name: value for name, value in item.items() if name not in KEPT}
        redacted, _ = self._redactor.record_bytes(orjson.dumps(rest))
        if len(self._redactor.learned) > before:
            self._redactor.look_for_learned()
        return {name: item[name] for name in KEPT if name in item} | dict(orjson.loads(redacted))


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for block in request.stream():
        body += block
        if len(body) > LARGEST:
            raise Refused(413, RESOURCE_EXHAUSTED, f"the body has more than {LARGEST >> 20} MiB; send smaller batches")
    return bytes(body)


def _expanded(body: bytes, encoding: str) -> bytes:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Refused(415, INVALID, f"content-encoding {encoding:.40}: send gzip, or none")
    stream = zlib.decompressobj(wbits=31)
    try:
        expanded = stream.decompress(body, LARGEST)
    except zlib.error as error:
        raise Refused(400, INVALID, f"the body is not gzip: {error}") from error
    if stream.unconsumed_tail:
        raise Refused(413, RESOURCE_EXHAUSTED, f"the body expands to more than {LARGEST >> 20} MiB; send smaller batches")
    if not stream.eof:
        raise Refused(400, INVALID, "the body is not gzip: it ends too early")
    return expanded


def _parsed(body: bytes, kind: str, signal: Signal) -> Value:
    """An export as OTLP's JSON has it."""
    if kind == JSON:
        try:
            value = parse_json(body)
        except ValueError as error:
            raise Refused(400, INVALID, f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refused(400, INVALID, f"the body is no export: an object with {signal.resources}")
        return value
    message = signal.request()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise Refused(400, INVALID, f"the body is no {signal.request.__name__}: {error}") from error
    value = json_format.MessageToDict(message, use_integers_for_enums=True)
    for item in _items(value, signal):
        for name in IDS:  # OTLP's JSON has them in hexadecimal digits, that of protobuf in base64
            if name in item:
                item[name] = base64.b64decode(item[name]).hex()
    return dict(value)


def _items(value: Value, signal: Signal) -> Iterator[Value]:
    for resource in _objects(value.get(signal.resources)):
        for scope in _objects(resource.get(signal.scopes)):
            yield from _objects(scope.get(signal.items))


def _objects(listed: Any) -> Iterable[Value]:
    return (item for item in listed if isinstance(item, dict)) if isinstance(listed, list) else ()


def _written(message: Message, kind: str) -> bytes:
    if kind == PROTOBUF:
        return message.SerializeToString()
    return json_format.MessageToJson(message, indent=None).encode()
