"""What is wrong is refused in the vendors' words: their clients raise their own exceptions, and retry where it makes sense."""

import anthropic
import pytest

from tests.tracewheel.gateway.dialects.test_refusals import KINDS as OPENAI_KINDS
from tests.tracewheel.gateway.dialects.test_refusals import TRIES, USER, names, told
from tracewheel import Refusal

CLAUDE, RESPONSE = {"model": "m", "max_tokens": 9, "messages": [USER]}, {"model": "m", "input": "hi"}
RESPONSE_CASES = [
    ({"input": None}, "input", "missing_required_parameter"),
    ({"input": 5}, "input", "invalid_type"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type", "invalid_value"),
    ({"input": [{"type": "function_call_output", "call_id": "a", "output": "x"}]}, "input", None),
    ({"input": [{"type": "function_call", "call_id": "a", "name": "find", "arguments": "{}"}]}, "input", None),
    ({"input": [{"type": "item_reference", "id": "rs_none"}]}, "input", "item_not_found"),
    ({"previous_response_id": "resp_none"}, "previous_response_id", "previous_response_not_found"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
    ({"truncation": "sometimes"}, "truncation", "invalid_value"),
    ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice.type", "invalid_value"),
    ({"background": True}, "background", "unsupported_parameter"),
    ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": 1}}}, "text.format.schema", "invalid_type"),
    ({"include": ["everything"]}, "include[0]", "invalid_value"),
    ({"stop": "x"}, "stop", "unknown_parameter"),
]
CLAUDE_CASES = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
    (told([{"type": "tool_result", "tool_use_id": "a", "content": "x"}]), "messages"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": ""}]}, USER]},
        "messages.0.content.0.type",
    ),
    ({"tools": [{"name": "find"}]}, "tools.0.input_schema"),
    ({"tools": [{"name": "find it", "input_schema": {}}]}, "tools.0.name"),
    ({"tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
    ({"temperature": 1.5}, "temperature"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
]


def test_a_sound_body_is_answered(http, door, spoken):
    path, body = spoken
    door.reply("so")
    assert http.post(path, json=body).status_code == 200


@pytest.mark.parametrize(("change", "param", "code"), RESPONSE_CASES, ids=names(RESPONSE_CASES))
def test_responses(http, change, param, code):
    response = http.post("responses", json=RESPONSE | change)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)


@pytest.mark.parametrize(("change", "place"), CLAUDE_CASES, ids=names(CLAUDE_CASES))
def test_anthropic(http, change, place):
    response = http.post("messages", json=CLAUDE | change)
    body = response.json()
    assert (response.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert body["error"]["message"].startswith(f"{place}: ")
    assert body["request_id"] == response.headers["request-id"]


KINDS = {
    "invalid_request": (anthropic.BadRequestError, "invalid_request_error"),
    "context_length_exceeded": (anthropic.BadRequestError, "invalid_request_error"),
    "authentication": (anthropic.AuthenticationError, "authentication_error"),
    "not_found": (anthropic.NotFoundError, "not_found_error"),
    "too_large": (anthropic.APIStatusError, "request_too_large"),
    "rate_limit": (anthropic.RateLimitError, "rate_limit_error"),
    "server_error": (anthropic.InternalServerError, "api_error"),
    "overloaded": (anthropic.InternalServerError, "overloaded_error"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", Refusal.KINDS)
def test_clients_raise_their_own_exceptions(chat, claude, door, kind, stream):
    of_anthropic, name = KINDS[kind]
    for _ in range(2):
        door.fail(Refusal(kind, "why", "messages"))
    with pytest.raises(OPENAI_KINDS[kind], match="why"):
        chat.responses.create(**RESPONSE, stream=stream)
    with pytest.raises(of_anthropic, match="why") as error:
        claude.messages.create(**CLAUDE, stream=stream)
    assert error.value.body["error"]["type"] == name
    assert error.value.request_id == error.value.body["request_id"]


def test_words_that_programs_look_for(claude, door):
    door.fail(Refusal("context_length_exceeded", "9000 tokens, and 400 is the most"))
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9000 tokens"):
        claude.messages.create(**CLAUDE)
    door.fail(Refusal("overloaded", "full"))
    with pytest.raises(anthropic._exceptions.OverloadedError) as overloaded:
        claude.messages.create(**CLAUDE)
    assert overloaded.value.status_code == 529


@TRIES
def test_the_client_asks_again_where_that_is_of_use(claude, door, refusal, tries):
    for _ in range(tries):
        door.fail(refusal)
    with pytest.raises(anthropic.APIStatusError):
        claude.with_options(max_retries=2).messages.create(**CLAUDE)
    assert len(door.requests) == tries
