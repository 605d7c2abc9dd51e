"""The server: keys and episodes, bodies that are none, slow replies, clients that go away."""

import asyncio
import functools
import json
import socket
import time

import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tracewheel.config import EndpointConfig
from tracewheel.core.errors import InputError
from tracewheel.gateway.exchange import Refusal
from tracewheel.gateway.server import AppServer, GatewayServer

KEY, OTHER_KEY, EPISODE = "key-of-the-first", "key-of-the-second", "first"  # as in conftest.py
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("episode", "key"),
    [(EPISODE, OTHER_KEY), ("second", KEY), (None, "nobody's"), ("none", KEY), (EPISODE, ""), (None, "")],
)
def test_other_keys_are_refused(served, door, spoken, episode, key):
    path, body = spoken
    response = httpx.post(f"{served.url(episode)}/v1/{path}", json=body, headers={"x-api-key": key})
    error = response.json()["error"]
    assert response.status_code == 401
    if path == "messages":
        assert error["type"] == "authentication_error"
    else:
        assert error["code"] == "invalid_api_key"
    assert not key or key not in response.text
    assert not door.requests


@pytest.mark.parametrize(("episode", "key"), [(EPISODE, KEY), (None, KEY), ("second", OTHER_KEY)])
def test_each_episode_has_a_base_url(served, door, episode, key):
    door.reply("so")
    with openai.OpenAI(base_url=served.openai_url(episode), api_key=key) as client:
        assert client.chat.completions.create(**CHAT).choices[0].message.content == "so"
    assert door.keys == [key]


def test_models(chat):
    assert [model.id for model in chat.models.list()] == ["tiny", "tiny/planner"]
    assert chat.models.retrieve("tiny/planner").id == "tiny/planner"


def test_health_needs_no_key(served):
    assert httpx.get(f"{served.url()}/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"hi"', b"\xff\xfe{}", b'{"model": NaN}', b'{"model": "\\ud800"}', b"[" * 5000, b"\x00" * 99],
)
def test_garbage(http, spoken, body):
    path, _ = spoken
    response = http.post(path, content=body, headers={"content-type": "application/json"})
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies(http, spoken, declared):
    path, body = spoken
    raw = json.dumps({**body, "user": "x" * 200_000}).encode()
    content = raw if declared else iter([raw[:1000], raw[1000:]])
    response = http.post(path, content=content)
    assert response.status_code == 413
    assert "200000 bytes" in response.json()["error"]["message"]


def test_other_paths_and_methods(http, served):
    for path, told in (("rerank", "Unknown request URL"), ("embeddings", "base URL of its own"), ("completions", "/v1/chat/")):
        response = http.post(path, json={})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")
        assert told in response.json()["error"]["message"]
    assert http.get("chat/completions").status_code == 405


def test_embeddings_are_passed_on(replaceable, monkeypatch):
    async def embed(request):
        asked = await request.json()
        return JSONResponse({"data": [asked, request.headers["authorization"]]}, 418)

    monkeypatch.setenv("THEIR_KEY", "theirs")
    with AppServer(Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"])]), "127.0.0.1", 0) as other:
        config = EndpointConfig(endpoint=f"{other.url()}/v1", model="small", api_key_variable="THEIR_KEY")
        with GatewayServer(replaceable, embeddings=config) as server:
            ask = functools.partial(httpx.post, f"{server.openai_url(EPISODE)}/embeddings", json={"model": "m", "input": "hi"})
            assert ask(headers={"x-api-key": "nobody's"}).status_code == 401
            answer = ask(headers={"x-api-key": KEY})
            assert (answer.status_code, answer.json()["data"]) == (418, [{"model": "small", "input": "hi"}, "Bearer theirs"])
            other.stop()
            assert "does not answer" in ask(headers={"x-api-key": KEY}).json()["error"]["message"]


def test_an_exception_of_the_door_is_a_server_error(chat, door):
    door.fail(ZeroDivisionError("a secret of ours"))
    with pytest.raises(openai.InternalServerError) as error:
        chat.chat.completions.create(**CHAT)
    assert "secret" not in str(error.value)


def test_a_slow_stream_shows_that_it_is_alive(http, door, events_of, spoken):
    path, body = spoken
    door.reply("so", wait=0.5)
    with http.stream("POST", path, json=body | {"stream": True}) as response:
        text = "".join(response.iter_text())
    assert text.startswith(": waiting")
    assert len(events_of(text)) > 3


def test_a_slow_stream_of_the_client(chat, door):
    door.reply("so", wait=0.3)
    with chat.chat.completions.stream(**CHAT) as stream:
        assert stream.get_final_completion().choices[0].message.content == "so"


FAILURES = pytest.mark.parametrize(
    "error", [Refusal("overloaded", "why", "messages"), ZeroDivisionError("a secret of ours")], ids=["refused", "failed"]
)


def told_of(error):
    """What a client is told of a failure."""
    return "why" if isinstance(error, Refusal) else "The server had an error"


@FAILURES
def test_a_failure_after_the_stream_has_begun(chat, door, error):
    door.fail(error, wait=0.3)
    with pytest.raises(openai.APIError, match=told_of(error)), chat.chat.completions.stream(**CHAT) as stream:
        stream.until_done()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_its_turn(http, door, spoken, stream):
    path, body = spoken
    door.reply("so", wait=30)
    with pytest.raises(httpx.ReadTimeout):
        http.post(path, json=body | {"stream": stream}, timeout=httpx.Timeout(5, read=0.02))
    wait_for(lambda: door.outcomes)
    assert door.outcomes == {"cancelled": 1}


def test_a_client_that_goes_away_within_its_stream(http, door, spoken):
    path, body = spoken
    door.reply("so", wait=30)
    with http.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        assert next(response.iter_text()).startswith(":")
    wait_for(lambda: door.outcomes)
    assert door.outcomes == {"cancelled": 1}


def test_a_client_that_goes_away_within_its_body(served, door, spoken):
    with socket.create_connection((served.host, served.port)) as connection:
        head = f"POST /e/{EPISODE}/v1/{spoken[0]} HTTP/1.1\r\nHost: x\r\nx-api-key: {KEY}\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(head.encode() + b"{")
        time.sleep(0.1)
    assert httpx.get(f"{served.url()}/health").status_code == 200
    assert not door.requests


def test_asynchronous_clients_ask_at_once(served, door):
    for number in range(20):
        door.reply(f"reply {number}", wait=1.0)

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=served.openai_url(EPISODE), api_key=KEY) as chat:
            return await asyncio.gather(*(_of_chat(chat) for _ in range(20)))

    async def _of_chat(chat):
        async with chat.chat.completions.stream(**CHAT) as stream:
            return (await stream.get_final_completion()).choices[0].message.content

    texts = asyncio.run(ask_all())
    assert sorted(texts) == sorted(f"reply {number}" for number in range(20))
    assert door.most_at_once > 10


def test_raw_responses_have_the_ids_of_their_requests(chat, door):
    door.reply("so")
    raw = chat.chat.completions.with_raw_response.create(**CHAT)
    assert raw.parse()._request_id == raw.request_id == raw.headers["x-request-id"]


def test_a_port_that_is_taken(served, replaceable):
    with pytest.raises(InputError, match="cannot listen"):
        GatewayServer(replaceable, port=served.port)


def test_a_server_that_stops_cancels_what_it_does(replaceable, door, spoken):
    path, body = spoken
    door.reply("so", wait=60)
    with GatewayServer(replaceable) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{server.url(EPISODE)}/v1/{path}",
                json=body,
                headers={"x-api-key": KEY},
                timeout=httpx.Timeout(5, read=0.1),
            )
        port = server.port
    assert door.outcomes == {"cancelled": 1}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/health")
