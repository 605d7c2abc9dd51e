"""The chat endpoint's client over real HTTP: requests, replies, retries, limits and costs."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest
from pydantic import ValidationError

from tracewheel.config import EndpointConfig, PricesConfig, TeacherConfig
from tracewheel.core.errors import InfrastructureError, InputError
from tracewheel.engines.chat_reply import BudgetReached, Reply, ReplyTokens, Usage
from tracewheel.engines.openai_chat import OpenAiChat, RefusedRequest, TooLong

ASKED = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "finish", "description": "Ends.", "parameters": {"type": "object"}}}]


def ask(server, *, seed=1, first_wait=0.01, **settings):
    url = server if isinstance(server, str) else server.url
    with OpenAiChat(TeacherConfig(endpoint=url, model="big", **settings), first_wait=first_wait) as chat:
        return chat.complete(ASKED, TOOLS, seed)


def test_request_and_reply(chat_server, monkeypatch):
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
    assert reply.ended_by == "stop" and reply.usage == Usage(prompt_tokens=100, completion_tokens=10)


def test_calls_have_the_format_of_openai_logs(chat_server):
    call = {"id": "c1", "type": "function", "function": {"name": "finish", "arguments": "{}"}, "index": 0}
    reply = ask(chat_server(lambda body, number: {"tool_calls": [call]}))
    expected = {"id": "c1", "type": "function", "function": {"name": "finish", "arguments": "{}"}}
    assert reply.message == {"role": "assistant", "content": None, "tool_calls": [expected]}
    assert reply.ended_by == "tool_calls"


def test_the_key_is_optional_and_extra_can_remove_fields(chat_server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = chat_server(lambda body, number: {"content": "hi"})
    ask(server, extra={"seed": None, "max_tokens": None, "max_completion_tokens": 9})
    ((headers, body),) = server.requests
    assert "Authorization" not in headers
    assert "seed" not in body and "max_tokens" not in body and body["max_completion_tokens"] == 9


@pytest.mark.parametrize("problem", [(500, {}, b"oops"), (429, {}, {"error": {"message": "slow down"}}), (503, {}, b""), None])
def test_transient_errors_are_retried(chat_server, problem):
    server = chat_server(lambda body, number: {"content": "hi"} if number == 2 else problem)
    assert ask(server, retries=2).message["content"] == "hi"
    assert len(server.requests) == 3


def test_retry_after_in_seconds_is_obeyed(chat_server):
    server = chat_server(lambda body, number: {"content": "hi"} if number else (429, {"Retry-After": "0.4"}, b""))
    started = time.monotonic()
    ask(server, retries=1)
    assert time.monotonic() - started >= 0.4


def test_retry_after_as_a_date_is_obeyed(chat_server):
    """A date has whole seconds, so it is two to three of them from now; the server's own clock is an hour ahead."""

    def answer(body, number):
        now = time.time() + 3600
        return {"content": "hi"} if number else (429, {"Retry-After": formatdate(now + 2, usegmt=True)}, b"")

    server = chat_server(answer)
    server.clock_ahead = 3600
    started = time.monotonic()
    ask(server, retries=1)
    assert 1.0 <= time.monotonic() - started < 4.0


def test_retry_after_pauses_all_threads(chat_server):
    """Eight threads; the first response asks to wait half a second, and no request is sent before that."""
    times, lock = [], threading.Lock()

    def answer(body, number):
        with lock:
            times.append(time.monotonic())
        if number == 0:
            return 429, {"Retry-After": "0.5"}, {"error": {"message": "slow down"}}
        return {"content": "hi"}

    server = chat_server(answer)
    config = EndpointConfig(endpoint=server.url, model="big")
    with OpenAiChat(config, first_wait=0.01) as chat, ThreadPoolExecutor(8) as pool:
        first = pool.submit(chat.complete, ASKED, [], 1)
        while not times:
            time.sleep(0.01)
        time.sleep(0.1)
        rest = [pool.submit(chat.complete, ASKED, [], 1) for _ in range(7)]
        assert {future.result().message["content"] for future in [first, *rest]} == {"hi"}
    assert len(times) == 9 and min(times[1:]) - times[0] >= 0.45
    assert chat.counts == {"sent": 9, "repeated": 1, "no_answer": 0}


def test_a_wait_over_the_limit_is_an_error_at_once(chat_server):
    server = chat_server(lambda body, number: (429, {"Retry-After": "3600"}, {"error": {"message": "quota"}}))
    with pytest.raises(InfrastructureError, match="quota; it asks to wait 3600 s, 300 s is the longest"):
        ask(server)
    assert len(server.requests) == 1


def test_requests_wait_for_an_exhausted_limit_in_the_headers(chat_server):
    exhausted = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "400ms"}
    server = chat_server(lambda body, number: {"content": "hi", "headers": exhausted if number == 0 else {}})
    with OpenAiChat(EndpointConfig(endpoint=server.url, model="big")) as chat:
        chat.complete(ASKED, [], 1)
        started = time.monotonic()
        chat.complete(ASKED, [], 1)
        chat.complete(ASKED, [], 1)
    assert 0.35 <= time.monotonic() - started < 2.0 and len(server.requests) == 3


def test_configured_limits_hold_over_all_threads(chat_server):
    """At the server: of twenty requests by ten threads at most six in any half second."""
    times = []
    server = chat_server(lambda body, number: times.append(time.monotonic()) or {"content": "hi"})
    config = EndpointConfig(endpoint=server.url, model="big", requests_per_minute=6, concurrency=10)
    with OpenAiChat(config, minute=0.5) as chat, ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda seed: chat.complete(ASKED, [], seed), range(20)))
    margin = 0.1  # requests take different times to arrive
    assert max(sum(one <= other < one + 0.5 - margin for other in times) for one in times) <= 6
    assert max(times) - min(times) >= 3 * 0.5 - margin


def test_token_estimates_follow_the_replies(chat_server):
    """110 tokens per reply and 400 per period: the first estimates are high, then three fit."""
    server = chat_server(lambda body, number: {"content": "hi"})
    config = EndpointConfig(endpoint=server.url, model="big", tokens_per_minute=400, max_turn_tokens=10)
    with OpenAiChat(config, minute=2.0) as chat:
        started = time.monotonic()
        for _ in range(3):
            chat.complete(ASKED * 5, [], 1)
        assert time.monotonic() - started < 1.8
        chat.complete(ASKED * 5, [], 1)
        assert time.monotonic() - started >= 1.95


def test_the_cost_of_a_reply(chat_server):
    """1,000 prompt tokens, 600 of them cached, and 50 completion tokens, at 2, 0.5 and 10 per million."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 600}}
    server = chat_server(lambda body, number: {"content": "hi", "usage": usage})
    reply = ask(server, prices=PricesConfig(input=2.0, cached_input=0.5, output=10.0))
    assert reply.usage == Usage(1000, 600, 50, pytest.approx((400 * 2.0 + 600 * 0.5 + 50 * 10.0) / 1e6))
    assert ask(server, prices=PricesConfig(input=2.0, output=10.0)).usage.cost == pytest.approx(0.0025)
    assert ask(server).usage == Usage(1000, 600, 50, None)
    assert Reply.from_record(reply.to_record()) == reply


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": 9}])
def test_missing_usage_is_unknown_and_not_0(chat_server, usage):
    server = chat_server(lambda body, number: {"content": "hi", "usage": usage})
    prices = PricesConfig(input=1.0, output=1.0)
    assert ask(server, prices=prices).usage == Usage(known=False)
    with pytest.raises(InputError, match="reports no usage, so no budget can be kept"):
        ask(server, prices=prices, budget=5.0)


def test_many_threads_never_exceed_the_budget(chat_server):
    """A reply costs 1.1; each request reserves the cost of its bytes and the longest completion."""
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    server = chat_server(lambda body, number: time.sleep(0.01) or {"content": "hi", "usage": usage})
    prices = PricesConfig(input=1e4, output=1e4)
    config = EndpointConfig(endpoint=server.url, model="big", max_turn_tokens=20, prices=prices, budget=30.0)
    answered, stopped = [], []

    def one(seed):
        try:
            answered.append(chat.complete(ASKED, [], seed).usage.cost)
        except BudgetReached:
            stopped.append(seed)

    with OpenAiChat(config) as chat, ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(60)))
    size = len(
        '{"model": "big", "messages": [{"role": "user", "content": "hello"}], "temperature": 1.0, "max_tokens": 20, "seed": 1}'
    )
    at_most = (size + 2 + 20) / 100
    assert 30.0 - at_most <= sum(answered) <= 30.0 and len(stopped) == 60 - len(answered)
    assert len(server.requests) == len(answered)


def test_a_request_without_an_answer_counts_in_full(chat_server):
    """Two dropped connections leave no room in the budget for a third try."""
    server = chat_server(lambda body, number: None)
    prices = PricesConfig(input=0.0, output=1e4)  # 0.2 a reply of 20 tokens
    with pytest.raises(BudgetReached, match=r"0\.4 is spent"):
        ask(server, retries=5, max_turn_tokens=20, prices=prices, budget=0.5)
    assert len(server.requests) == 2


def test_token_ids_and_log_probabilities_in_vllms_format(chat_server):
    message = {"content": "hi", "prompt_token_ids": [1, 2, 3], "token_ids": [7, 8], "logprobs": [-0.5, 0.0]}
    server = chat_server(lambda body, number: dict(message))
    reply = ask(server, token_ids=True)
    assert reply.tokens == ReplyTokens([1, 2, 3], [7, 8], [-0.5, 0.0]) and reply.without_tokens == ""
    assert server.requests[0][1]["return_token_ids"] is True and server.requests[0][1]["logprobs"] is True
    assert Reply.from_record(reply.to_record()) == reply
    reply = ask(server)
    assert reply.tokens is None and reply.without_tokens == "the endpoint was not asked for token ids"
    assert not server.requests[-1][1].keys() & {"logprobs", "return_token_ids"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"token_ids": None}, "gives no token ids"),
        ({"prompt_token_ids": None}, "gives no token ids"),
        ({"logprobs": None}, "gives no log-probabilities"),
        ({"logprobs": [-0.5]}, "gives 1 log-probabilities for 2 tokens"),
        ({"logprobs": [-0.5, -9999.0]}, "does not know the log-probability of every token"),
    ],
)
def test_a_reply_without_tokens_says_why(chat_server, change, why):
    message = {"content": "hi", "prompt_token_ids": [1, 2, 3], "token_ids": [7, 8], "logprobs": [-0.5, -0.25]}
    reply = ask(chat_server(lambda body, number: message | change), token_ids=True)
    assert reply.tokens is None and why in reply.without_tokens


def test_an_empty_list_of_tools_is_not_sent_and_a_temperature_can_be_given(chat_server):
    """Some endpoints refuse an empty list of tools."""
    server = chat_server(lambda body, number: {"content": "hi"})
    with OpenAiChat(EndpointConfig(endpoint=server.url, model="big")) as chat:
        chat.complete(ASKED, [], 1, temperature=0.0)
    assert "tools" not in server.requests[0][1] and server.requests[0][1]["temperature"] == 0.0


def test_a_conversation_longer_than_the_context_is_too_long(chat_server):
    message = {"error": {"message": "too many tokens", "code": "context_length_exceeded"}}
    with pytest.raises(TooLong):
        ask(chat_server(lambda body, number: (400, {}, message)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 1.0}, "a budget needs prices"),
        ({"extra": {"stream": True}}, "extra.stream"),
        ({"extra": {"n": 2}}, "extra.n"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        EndpointConfig(endpoint="http://localhost/v1", model="big", **settings)


def test_the_last_error_is_reported_after_all_retries(chat_server):
    server = chat_server(lambda body, number: (500, {}, {"error": {"message": "out of\nmemory"}}))
    with pytest.raises(InfrastructureError, match="no answer after 3 tries; last error: status 500: out of memory"):
        ask(server, retries=2)
    assert len(server.requests) == 3


def test_a_slow_answer_is_a_timeout(chat_server):
    server = chat_server(lambda body, number: time.sleep(2))
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match="ReadTimeout"):
        ask(server, retries=1, timeout=0.2)
    assert time.monotonic() - started < 1.5


def test_a_missing_endpoint_is_an_infrastructure_error():
    with pytest.raises(InfrastructureError, match="ConnectError"):
        ask("http://127.0.0.1:9/v1", retries=0)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "is the key in the environment variable OPENAI_API_KEY right"), (404, "are endpoint .* and model right")],
)
def test_a_wrong_key_or_path_is_not_retried(chat_server, monkeypatch, status, advice):
    monkeypatch.setenv("OPENAI_API_KEY", "top-secret")
    server = chat_server(lambda body, number: (status, {}, {"error": {"message": "no"}}))
    with pytest.raises(InputError, match=advice) as caught:
        ask(server)
    assert len(server.requests) == 1
    assert "top-secret" not in str(caught.value)


def test_a_wrong_path_names_the_usual_one(chat_server):
    server = chat_server(lambda body, number: {"content": "hi"})
    with pytest.raises(InputError, match="status 404.*it usually ends in /v1"):
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
def test_an_invalid_answer_refuses_this_conversation_alone(chat_server, answer):
    server = chat_server(lambda body, number: answer)
    with pytest.raises(RefusedRequest):
        ask(server)
    assert len(server.requests) == 1
