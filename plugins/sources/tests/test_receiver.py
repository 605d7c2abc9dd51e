"""The receiver over HTTP: both encodings, gzip, answers as OTLP's specification has them, and the log that ingest reads."""

import gzip
import json
from collections.abc import Iterator

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.gateway.conversation_log import ConversationLog
from tracewheel.gateway.server import AppServer
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel_sources import receiver as module
from tracewheel_sources.receiver import Receiver

KEY = "0123456789abcdef"
PROTOBUF = {"content-type": "application/x-protobuf"}
SAID = [("gen_ai.input.messages", "user", "Weather? Ask ada@lovelace.org"), ("gen_ai.output.messages", "assistant", "Sunny.")]
ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "user.id": "ada@lovelace.org",
    **{key: json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}]) for key, role, text in SAID},
}


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[httpx.Client, Receiver]]:
    log = ConversationLog(tmp_path / "log", "otlp")
    receiver = Receiver(log, Redactor(RedactionConfig()), KEY)
    shown = {"authorization": f"Bearer {KEY}"}
    with AppServer(receiver.app(), "127.0.0.1", 0) as server, httpx.Client(base_url=server.url(), headers=shown) as client:
        yield client, receiver
    log.close()


def spans(*named, trace=b"\x01" * 16):
    request = ExportTraceServiceRequest()
    for number, attributes in enumerate(named, start=1):
        span = (
            request.resource_spans.add()
            .scope_spans.add()
            .spans.add(
                trace_id=trace,
                span_id=bytes([number] * 8),
                name="chat",
                start_time_unix_nano=1_790_000_000_000_000_000 + number,
            )
        )
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = value
    return request


def ingested(tmp_path):
    import pandas

    ingest_new(IngestConfig(paths=(str(tmp_path / "log"),)), tmp_path / "out")
    return pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")


@pytest.mark.parametrize("compressed", [False, True])
def test_protobuf_is_taken_and_read_by_ingest_without_personal_data(served, tmp_path, compressed):
    client, receiver = served
    body = spans(ATTRIBUTES, {"http.route": "/"}).SerializeToString()
    headers = PROTOBUF | ({"content-encoding": "gzip"} if compressed else {})
    answer = client.post("/v1/traces", content=gzip.compress(body, mtime=0) if compressed else body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert not ExportTraceServiceResponse.FromString(answer.content).HasField("partial_success")
    assert (receiver.kept, receiver.dropped) == (1, 1)
    written = (next((tmp_path / "log").iterdir())).read_text()
    assert "lovelace" not in written
    (trace,) = ingested(tmp_path)
    assert (trace["id"], trace["user"][:5]) == ("01" * 16, "user-")
    assert [message["role"] for message in json.loads(trace["messages"])] == ["user", "assistant"]


def test_log_records_as_json_meet_their_spans_in_ingest(served, tmp_path):
    client, _ = served
    client.post("/v1/traces", content=spans({"gen_ai.operation.name": "chat"}).SerializeToString(), headers=PROTOBUF)
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in ATTRIBUTES.items()]
    record = {"eventName": "gen_ai.client.inference.operation.details", "timeUnixNano": "1790000000000000009"}
    record |= {"traceId": "01" * 16, "spanId": "01" * 8, "attributes": attributes}
    other = {"body": {"stringValue": "started"}}
    answer = client.post("/v1/logs", json={"resourceLogs": [{"scopeLogs": [{"logRecords": [record, other]}]}]})
    assert (answer.status_code, answer.json()) == (200, {})
    (trace,) = ingested(tmp_path)
    assert json.loads(trace["messages"])[1]["content"] == "Sunny."


def test_what_cannot_be_kept_is_a_partial_success_that_says_why(served):
    client, _ = served
    answer = client.post("/v1/traces", content=spans(ATTRIBUTES, trace=b"").SerializeToString(), headers=PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans, partial.error_message[:19]) == (200, 1, "without a trace id,")
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(event_name="gen_ai.user.message")
    answer = client.post("/v1/logs", content=request.SerializeToString(), headers=PROTOBUF)
    assert ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1


REFUSED = [
    ({}, b"\x0a\xff\xff", 400, "no ExportTraceServiceRequest"),
    ({"content-type": "application/json"}, b"{", 400, "not JSON"),
    ({"content-type": "application/json"}, b"[]", 400, "no export"),
    ({"content-encoding": "gzip"}, b"plain", 400, "not gzip"),
    ({"content-encoding": "gzip"}, gzip.compress(b"x" * 100, mtime=0)[:-9], 400, "ends too early"),
    ({"content-encoding": "br"}, b"", 415, "send gzip"),
    ({"content-type": "text/plain"}, b"", 415, "send application/x-protobuf"),
    ({}, b"x" * 2000, 413, "more than"),
    ({"content-encoding": "gzip"}, gzip.compress(bytes(2000), mtime=0), 413, "expands to more"),
    ({"authorization": "Bearer wrong"}, b"", 401, "send the key"),
]


@pytest.mark.parametrize(("headers", "body", "status", "says"), REFUSED)
def test_refusals_have_the_status_of_the_specification_and_a_message(
    served, monkeypatch, tmp_path, headers, body, status, says
):
    monkeypatch.setattr(module, "LARGEST", 1000)
    client, _ = served
    answer = client.post("/v1/traces", content=body, headers=PROTOBUF | headers)
    assert answer.status_code == status
    if answer.headers["content-type"] == "application/json":
        assert says in answer.json()["message"]
    else:
        assert says in Status.FromString(answer.content).message
    assert list((tmp_path / "log").iterdir()) == []


def test_other_paths_and_methods_are_refused(served):
    client, _ = served
    assert client.get("/v1/traces").status_code == 405
    assert client.post("/v1/metrics").status_code == 404
    assert client.get("/health").json() == {"status": "ok"}


def test_a_log_that_cannot_be_written_asks_the_sender_to_try_again(served, tmp_path):
    client, _ = served
    (tmp_path / "log").rmdir()
    answer = client.post("/v1/traces", content=spans(ATTRIBUTES).SerializeToString(), headers=PROTOBUF)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
