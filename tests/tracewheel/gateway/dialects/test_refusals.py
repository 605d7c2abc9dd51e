"""What is wrong is refused in the vendors' words: their clients raise their own exceptions, and retry where it makes sense."""

import anthropic
import openai
import pytest

from tracewheel.gateway.exchange import Refusal

USER = {"role": "user", "content": "hi"}
CHAT, CLAUDE, RESPONSE = (
    {"model": "m", "messages": [USER]},
    {"model": "m", "max_tokens": 9, "messages": [USER]},
    {"model": "m", "input": "hi"},
)
FUNCTION = {"type": "function", "function": {"name": "find"}}
CALLING = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}],
}


def told(content):
    return {"messages": [USER, {"role": "user", "content": content}]}


# A change to a sound body, and the field and code of the refusal.
CHAT_CASES = [
    ({"model": None}, "model", "missing_required_parameter"),
    ({"model": 3}, "model", "invalid_type"),
    ({"messages": None}, "messages", "missing_required_parameter"),
    ({"messages": []}, "messages", "empty_array"),
    ({"messages": "hi"}, "messages", "invalid_type"),
    ({"messages": [USER, "hi"]}, "messages[1]", "invalid_type"),
    ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id", "missing_required_parameter"),
    ({"messages": [USER, {"role": "tool", "tool_call_id": "a", "content": "x"}]}, "messages", None),
    ({"messages": [USER, CALLING, USER]}, "messages", None),
    ({"messages": [USER, CALLING]}, "messages", None),
    (told(7), "messages[1].content", "invalid_type"),
    (told([{"type": "text"}]), "messages[1].content[0].text", "missing_required_parameter"),
    ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].custom.name", "missing_required_parameter"),
    (told([{"type": "hologram"}]), "messages[1].content[0].type", "invalid_value"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "missing_required_parameter"),
    ({"tools": [FUNCTION, FUNCTION]}, "tools", "invalid_value"),
    ({"tools": [FUNCTION], "tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "lose"}}}, "tool_choice", "invalid_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"functions": [{"name": "find"}]}, "functions", "unsupported_parameter"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.name",
        "missing_required_parameter",
    ),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
    ({"temperature": 3}, "temperature", "integer_above_max_value"),
    ({"top_p": -0.1}, "top_p", "decimal_below_min_value"),
    ({"temperature": "warm"}, "temperature", "invalid_type"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
    ({"n": 1000}, "n", "integer_above_max_value"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "array_above_max_length"),
    ({"stop": [""]}, "stop", "invalid_value"),
    ({"stop": 4}, "stop", "invalid_type"),
    ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"temprature": 1}, "temprature", "unknown_parameter"),
]
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


def names(cases):
    return [f"{case[1]}-{number}" for number, case in enumerate(cases)]


def test_sound_bodies_are_answered(http, door):
    for path, body in (("chat/completions", CHAT), ("responses", RESPONSE), ("messages", CLAUDE)):
        door.reply("so")
        assert http.post(path, json=body).status_code == 200


@pytest.mark.parametrize(("change", "param", "code"), CHAT_CASES, ids=names(CHAT_CASES))
def test_chat(http, change, param, code):
    response = http.post("chat/completions", json=CHAT | change)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)
    assert response.headers["x-should-retry"] == "false"


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
    "invalid_request": (openai.BadRequestError, anthropic.BadRequestError, "invalid_request_error"),
    "context_length_exceeded": (openai.BadRequestError, anthropic.BadRequestError, "invalid_request_error"),
    "authentication": (openai.AuthenticationError, anthropic.AuthenticationError, "authentication_error"),
    "not_found": (openai.NotFoundError, anthropic.NotFoundError, "not_found_error"),
    "too_large": (openai.APIStatusError, anthropic.APIStatusError, "request_too_large"),
    "rate_limit": (openai.RateLimitError, anthropic.RateLimitError, "rate_limit_error"),
    "server_error": (openai.InternalServerError, anthropic.InternalServerError, "api_error"),
    "overloaded": (openai.InternalServerError, anthropic.InternalServerError, "overloaded_error"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", Refusal.KINDS)
def test_clients_raise_their_own_exceptions(chat, claude, door, kind, stream):
    of_openai, of_anthropic, name = KINDS[kind]
    for _ in range(3):
        door.fail(Refusal(kind, "why", "messages"))
    with pytest.raises(of_openai, match="why") as error:
        chat.chat.completions.create(**CHAT, stream=stream)
    assert (error.value.status_code, error.value.param) == (Refusal.KINDS[kind], "messages")
    assert error.value.request_id.startswith("req_")
    with pytest.raises(of_openai, match="why"):
        chat.responses.create(**RESPONSE, stream=stream)
    with pytest.raises(of_anthropic, match="why") as error:
        claude.messages.create(**CLAUDE, stream=stream)
    assert error.value.body["error"]["type"] == name
    assert error.value.request_id == error.value.body["request_id"]


def test_words_that_programs_look_for(chat, claude, door):
    door.fail(Refusal("context_length_exceeded", "9000 tokens, and 400 is the most"))
    with pytest.raises(openai.BadRequestError) as error:
        chat.chat.completions.create(**CHAT)
    assert error.value.code == "context_length_exceeded"
    door.fail(Refusal("context_length_exceeded", "9000 tokens, and 400 is the most"))
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9000 tokens"):
        claude.messages.create(**CLAUDE)
    door.fail(Refusal("overloaded", "full"))
    with pytest.raises(anthropic._exceptions.OverloadedError) as overloaded:
        claude.messages.create(**CLAUDE)
    assert overloaded.value.status_code == 529


@pytest.mark.parametrize(
    ("refusal", "tries"),
    [
        (Refusal("overloaded", "full", retry_after=0.01), 3),
        (Refusal("rate_limit", "slowly", retry_after=0.01), 3),
        (Refusal("rate_limit", "the episode has had its turns"), 1),
        (Refusal("server_error", "the engine has failed"), 1),
    ],
    ids=["overloaded", "slow down", "a limit", "failed"],
)
def test_clients_ask_again_where_that_is_of_use(chat, claude, door, refusal, tries):
    for client, ask in (
        (chat.with_options(max_retries=2), lambda one: one.chat.completions.create(**CHAT)),
        (claude.with_options(max_retries=2), lambda one: one.messages.create(**CLAUDE)),
    ):
        before = len(door.requests)
        for _ in range(tries):
            door.fail(refusal)
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            ask(client)
        assert len(door.requests) - before == tries
