"""What a client may send without stopping the others: long conversations, large bodies, requests that never end."""

import contextlib
import json
import socket
import threading
import time

import httpx
import pytest

from tests.timing import cpu_seconds
from tracewheel.gateway import connections
from tracewheel.gateway.asking import Limits, parse_body
from tracewheel.gateway.conversation_log import ConversationLog
from tracewheel.gateway.episode_tree import cut_at_stop
from tracewheel.gateway.exchange import ChatRequest, Refusal
from tracewheel.gateway.server import GatewayServer
from tracewheel.gateway.serving import Served, ServingDoor
from tracewheel.gateway.serving_routes import serving_routes

KEY = "a-key-of-the-doors"
OWN = {"authorization": f"Bearer {KEY}"}
HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
HALF_SENT = {
    "nothing": "",
    "a_line": "POST /v1/chat/completions HTTP/1.1\r\nHo",
    "headers": HEAD,
    "body": HEAD + "Content-Length: 100\r\n\r\n{",
    "chunk": HEAD + "Transfer-Encoding: chunked\r\n\r\n40\r\n{",
    "without_key": "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
}


@pytest.fixture
def door(thread, renderer, limits, tmp_path):
    """A served policy."""
    return ServingDoor(Served(thread(), "base"), renderer, limits, ConversationLog(tmp_path / "log"), frozenset([KEY]))


@pytest.fixture
def patient(door):
    """Its server, with little patience."""
    with GatewayServer(door, limits=Limits(whole=1.0), routes=serving_routes(door)) as server:
        yield server


@contextlib.contextmanager
def slowest(url):
    """Asks for the health all the while; the list gets the longest that an answer took, in seconds."""
    ended, took = threading.Event(), [0.0]

    def ask():
        with httpx.Client(base_url=url, timeout=60) as client:
            while not ended.is_set():
                begun = time.monotonic()
                assert client.get("/health").status_code == 200
                took[0] = max(took[0], time.monotonic() - begun)
                time.sleep(0.005)

    thread = threading.Thread(target=ask)
    thread.start()
    yield took
    ended.set()
    thread.join()


def talk(count):
    """So many short messages, the assistant's in turn; the last is the user's."""
    roles = ("user", "assistant")
    return [{"role": roles[(number + count + 1) % 2], "content": f"short {number}"} for number in range(count)]


@pytest.mark.parametrize("session", [None, "s-1"])
def test_a_long_conversation_delays_no_other(patient, session):
    body = json.dumps({"model": "policy", "messages": talk(2001)})
    with slowest(patient.url()) as took:
        headers = OWN | ({"x-tracewheel-session": session} if session else {})
        reply = httpx.post(f"{patient.openai_url()}/chat/completions", content=body, headers=headers, timeout=120)
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
    assert took[0] < 0.7  # loaded machines are slow; 15 s when each beginning was hashed anew


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("chat/completions", {"messages": talk(10_001)}, "10000"),
        ("chat/completions", {"messages": talk(1), "tools": [{}] * 10_001}, "10000"),
        ("chat/completions", {"messages": talk(1), "metadata": {"a": [0] * 600_001}}, "500000"),
        ("chat/completions", {"messages": talk(600_001)}, f"{8 << 20}"),
    ],
)
def test_too_much_is_refused_before_it_is_read(patient, path, body, named):
    raw = json.dumps({"model": "policy", **body}, separators=(",", ":"))
    with slowest(patient.url()) as took:
        reply = httpx.post(f"{patient.openai_url()}/{path}", content=raw, headers=OWN, timeout=60)
    assert reply.status_code == 413 and named in reply.json()["error"]["message"]
    assert took[0] < 0.7


def test_a_text_longer_than_all_tokens_is_not_rendered(patient):
    body = {"model": "policy", "messages": [{"role": "user", "content": "word " * 1_000_000}]}
    reply = httpx.post(f"{patient.openai_url()}/chat/completions", json=body, headers=OWN, timeout=60)
    error = reply.json()["error"]
    assert error["code"] == "context_length_exceeded" and "over 400 tokens" in error["message"]  # nobody knows how many


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"messages":' + b"[" * 70 + b"]" * 70 + b"}"])
def test_deep_bodies_are_refused(raw):
    with pytest.raises(Refusal, match="nested deeper than 64"):
        parse_body(raw, Limits())


def test_half_sent_requests_are_closed_in_time(patient):
    with contextlib.ExitStack() as opened:
        made = []
        for text in HALF_SENT.values():
            connection = opened.enter_context(socket.create_connection((patient.host, patient.port), timeout=10))
            connection.sendall(text.encode())
            made.append(connection)
        body = {"model": "policy", "messages": talk(1), "max_tokens": 2}
        assert httpx.post(f"{patient.openai_url()}/chat/completions", json=body, headers=OWN, timeout=60).status_code == 200
        told = [b"".join(iter(lambda one=one: one.recv(4096), b"")) for one in made]  # until the server closes each
    told = dict(zip(HALF_SENT, told, strict=True))
    assert all(told[name].startswith(b"HTTP/1.1 408 ") for name in ("nothing", "a_line", "headers", "body", "chunk"))
    assert told["without_key"].startswith(b"HTTP/1.1 401 ")


def test_a_byte_now_and_then_keeps_no_connection_open(patient):
    begun = time.monotonic()
    with socket.create_connection((patient.host, patient.port), timeout=10) as connection:
        connection.sendall(HALF_SENT["body"].encode())
        with contextlib.suppress(OSError):
            while time.monotonic() - begun < 10:
                connection.sendall(b" ")
                connection.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(4096):
                        break
    assert time.monotonic() - begun < 5


def test_too_many_connections_make_room_and_those_that_are_answered_stay(door, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 20)
    with GatewayServer(door) as server, contextlib.ExitStack() as opened, httpx.Client(base_url=server.url()) as client:
        assert client.get("/health").status_code == 200  # at rest from here on
        made = [opened.enter_context(socket.create_connection((server.host, server.port), timeout=10)) for _ in range(60)]
        assert client.get("/health").status_code == 200
        assert httpx.get(f"{server.url()}/health").status_code == 200
        with contextlib.suppress(ConnectionResetError):
            assert made[0].recv(1) == b""  # the oldest went first
        made[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            made[-1].recv(1)


def test_a_server_stops_however_much_is_half_sent(door):
    with contextlib.ExitStack() as opened:
        with GatewayServer(door) as server:
            for text in list(HALF_SENT.values()) * 10:
                opened.enter_context(socket.create_connection((server.host, server.port))).sendall(text.encode())
            time.sleep(0.2)
            begun = time.monotonic()
        assert time.monotonic() - begun < 4
        assert not server._thread.is_alive()


def test_what_programs_say_is_not_kept_for_ever(renderer, monkeypatch):
    monkeypatch.setattr("tracewheel.chat.renderer.CACHED_OBSERVATIONS", 10)
    first = renderer.observation_ids([{"role": "tool", "content": "reply 0"}])
    for number in range(50):
        renderer.observation_ids([{"role": "tool", "content": f"reply {number}"}])
    assert len(renderer._observation_cache) <= 10
    assert renderer.observation_ids([{"role": "tool", "content": "reply 0"}]) == first


def test_calls_and_their_results_are_checked_in_one_walk():
    count = 20_000
    calls = [{"id": str(number), "function": {"name": "f", "arguments": "{}"}} for number in range(count)]
    results = [{"role": "tool", "tool_call_id": str(number), "content": ""} for number in reversed(range(count))]
    request = ChatRequest([{"role": "assistant", "tool_calls": calls}, *results])
    assert cpu_seconds(lambda: request.check_calls("messages"), 1.0) < 1.0
    for wrong in ([*results[:-1]], [*results, results[0]]):
        with pytest.raises(Refusal):
            ChatRequest([{"role": "assistant", "tool_calls": calls}, *wrong]).check_calls("messages")


def test_a_stop_text_is_found_without_reading_the_turn_again_for_each_token(renderer):
    text = "häuser 😀 " * 3000 + "STOP and so on"
    ids = renderer.tokenizer.encode(text, add_special_tokens=False)
    assert cpu_seconds(lambda: cut_at_stop(renderer, ids, ["STOP"]), 2.0) < 2.0
    said, before, stop = cut_at_stop(renderer, ids, ["STOP"])
    assert (before, stop) == (text[: text.index("STOP")], "STOP")
    assert renderer.decode(said).endswith("STOP") and not renderer.decode(said[:-1]).endswith("STOP")
    for end in ("😀", "ä", "user"):
        ids = renderer.tokenizer.encode("häuser 😀 häuser", add_special_tokens=False)
        said, _, _ = cut_at_stop(renderer, ids, [end])
        whole = [
            count for count in range(1, len(ids) + 1) if len(renderer.decode(ids[:count])) >= "häuser 😀".index(end) + len(end)
        ]
        assert len(said) == whole[0]
