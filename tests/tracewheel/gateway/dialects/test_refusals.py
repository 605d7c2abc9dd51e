"""What is wrong is refused in the vendors' words: their clients raise their own exceptions, and retry where it makes sense."""

import openai
import pytest

from tracewheel.gateway.exchange import Refusal

USER = {"role": "user", "content": "hi"}
CHAT = {"model": "m", "messages": [USER]}
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


def names(cases):
    return [f"{case[1]}-{number}" for number, case in enumerate(cases)]


def test_a_sound_body_is_answered(http, door):
    door.reply("so")
    assert http.post("chat/completions", json=CHAT).status_code == 200


@pytest.mark.parametrize(("change", "param", "code"), CHAT_CASES, ids=names(CHAT_CASES))
def test_chat(http, change, param, code):
    response = http.post("chat/completions", json=CHAT | change)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)
    assert response.headers["x-should-retry"] == "false"


KINDS = {
    "invalid_request": openai.BadRequestError,
    "context_length_exceeded": openai.BadRequestError,
    "authentication": openai.AuthenticationError,
    "not_found": openai.NotFoundError,
    "too_large": openai.APIStatusError,
    "rate_limit": openai.RateLimitError,
    "server_error": openai.InternalServerError,
    "overloaded": openai.InternalServerError,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", Refusal.KINDS)
def test_the_client_raises_its_own_exceptions(chat, door, kind, stream):
    door.fail(Refusal(kind, "why", "messages"))
    with pytest.raises(KINDS[kind], match="why") as error:
        chat.chat.completions.create(**CHAT, stream=stream)
    assert (error.value.status_code, error.value.param) == (Refusal.KINDS[kind], "messages")
    assert error.value.request_id.startswith("req_")


def test_words_that_programs_look_for(chat, door):
    door.fail(Refusal("context_length_exceeded", "9000 tokens, and 400 is the most"))
    with pytest.raises(openai.BadRequestError) as error:
        chat.chat.completions.create(**CHAT)
    assert error.value.code == "context_length_exceeded"


TRIES = pytest.mark.parametrize(
    ("refusal", "tries"),
    [
        (Refusal("overloaded", "full", retry_after=0.01), 3),
        (Refusal("rate_limit", "slowly", retry_after=0.01), 3),
        (Refusal("rate_limit", "the episode has had its turns"), 1),
        (Refusal("server_error", "the engine has failed"), 1),
    ],
    ids=["overloaded", "slow down", "a limit", "failed"],
)


@TRIES
def test_the_client_asks_again_where_that_is_of_use(chat, door, refusal, tries):
    for _ in range(tries):
        door.fail(refusal)
    with pytest.raises(openai.APIStatusError):
        chat.with_options(max_retries=2).chat.completions.create(**CHAT)
    assert len(door.requests) == tries
