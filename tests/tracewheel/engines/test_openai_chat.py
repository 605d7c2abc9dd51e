"""Asking a chat endpoint, over real HTTP: what is sent, what is tried again, and what is given up at once."""

import time

import pytest

from tracewheel.config import TeacherConfig
from tracewheel.engines.openai_chat import OpenAiChat, RefusedRequest
from tracewheel.errors import InfrastructureError, InputError

ASKED = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "finish", "description": "Ends.", "parameters": {"type": "object"}}}]


def ask(server, *, seed=1, first_wait=0.01, **settings):
    url = server if isinstance(server, str) else server.url
    with OpenAiChat(TeacherConfig(endpoint=url, model="big", **settings), first_wait=first_wait) as chat:
        return chat.complete(ASKED, TOOLS, seed)


def test_what_is_sent_and_what_comes_back(chat_server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    server = chat_server(lambda body, number: {"content": "hi", "reasoning_content": "hm", "refusal": None})
    reply = ask(server, seed=2**40 + 7, api_key_variable="MY_KEY", temperature=0.5, max_turn_tokens=33, extra={"top_p": 0.9})
    ((headers, body),) = server.requests
    assert body == {
        "model": "big",
        "messages": ASKED,
        "tools": TOOLS,
        "temperature": 0.5,
        "max_tokens": 33,
        "seed": 7,
        "top_p": 0.9,
    }
    assert headers["Authorization"] == "Bearer secret"
    assert reply.message == {"role": "assistant", "content": "hi"}, "reasoning is no part of the conversation"
    assert (reply.ended_by, reply.prompt_tokens, reply.completion_tokens) == ("stop", 100, 10)


def test_calls_come_back_as_openai_logs_have_them(chat_server):
    call = {"id": "c1", "type": "function", "function": {"name": "finish", "arguments": "{}"}, "index": 0}
    reply = ask(chat_server(lambda body, number: {"tool_calls": [call]}))
    expected = {"id": "c1", "type": "function", "function": {"name": "finish", "arguments": "{}"}}
    assert reply.message == {"role": "assistant", "content": None, "tool_calls": [expected]}
    assert reply.ended_by == "tool_calls"


def test_without_a_key_none_is_sent_and_a_field_can_be_left_out(chat_server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = chat_server(lambda body, number: {"content": "hi"})
    ask(server, extra={"seed": None, "max_tokens": None, "max_completion_tokens": 9})
    ((headers, body),) = server.requests
    assert "Authorization" not in headers
    assert "seed" not in body and "max_tokens" not in body and body["max_completion_tokens"] == 9


@pytest.mark.parametrize("problem", [(500, {}, b"oops"), (429, {}, {"error": {"message": "slow down"}}), (503, {}, b""), None])
def test_a_passing_trouble_is_sat_out(chat_server, problem):
    server = chat_server(lambda body, number: {"content": "hi"} if number == 2 else problem)
    assert ask(server, retries=2).message["content"] == "hi"
    assert len(server.requests) == 3


def test_it_waits_as_long_as_it_is_asked_to(chat_server):
    server = chat_server(lambda body, number: {"content": "hi"} if number else (429, {"Retry-After": "0.4"}, b""))
    started = time.monotonic()
    ask(server, retries=1)
    assert time.monotonic() - started >= 0.4


def test_in_the_end_it_gives_up_and_says_why(chat_server):
    server = chat_server(lambda body, number: (500, {}, {"error": {"message": "out of\nmemory"}}))
    with pytest.raises(InfrastructureError, match="no answer after 3 tries; the last: status 500: out of memory"):
        ask(server, retries=2)
    assert len(server.requests) == 3


def test_no_answer_in_time(chat_server):
    server = chat_server(lambda body, number: time.sleep(2))
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match="ReadTimeout"):
        ask(server, retries=1, timeout=0.2)
    assert time.monotonic() - started < 1.5


def test_nobody_there():
    with pytest.raises(InfrastructureError, match="ConnectError"):
        ask("http://127.0.0.1:9/v1", retries=0)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "is the key in the environment variable OPENAI_API_KEY right"), (404, "are teacher.endpoint .* and teacher.model")],
)
def test_what_will_not_fare_better_is_not_tried_again(chat_server, monkeypatch, status, advice):
    monkeypatch.setenv("OPENAI_API_KEY", "top-secret")
    server = chat_server(lambda body, number: (status, {}, {"error": {"message": "no"}}))
    with pytest.raises(InputError, match=advice) as caught:
        ask(server)
    assert len(server.requests) == 1
    assert "top-secret" not in str(caught.value)


def test_an_endpoint_that_is_not_one(chat_server):
    server = chat_server(lambda body, number: {"content": "hi"})
    with pytest.raises(InputError, match="status 404.*it mostly ends in /v1"):
        ask(server.url.removesuffix("/v1"))


@pytest.mark.parametrize(
    "answer",
    [
        (400, {}, {"error": {"message": "context length exceeded"}}),
        (200, {}, b"<html>"),
        (200, {}, {"choices": []}),
        (200, {}, {"choices": [{"message": {"content": None, "tool_calls": [{"id": "1"}]}}]}),
        (200, {}, {"choices": [{"message": {"content": "\ud800"}}]}),
    ],
)
def test_an_answer_of_no_use_is_this_conversations_trouble(chat_server, answer):
    server = chat_server(lambda body, number: answer)
    with pytest.raises(RefusedRequest):
        ask(server)
    assert len(server.requests) == 1
