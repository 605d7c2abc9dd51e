"""Calls in logs, and their equality."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.environments.recorded.calls import calls_in, exact_key, is_error, normalised, normalised_key, parameters_of

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "force": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "number"}},
        "limit": {"type": "integer", "default": 10},
        "either": {"type": ["string", "integer"]},
    },
    "required": ["path"],
}


def same(one, other):
    parameters = {"tool": SCHEMA}
    return normalised_key("tool", one, parameters) == normalised_key("tool", other, parameters)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"path": "a", "count": 1}, {"count": 1, "path": "a"}),
        ({"path": " a b "}, {"path": "a  b"}),
        ({"path": "caf\u00e9"}, {"path": "cafe\u0301"}),
        ({"path": "a\r\nb"}, {"path": "a\nb"}),
        ({"path": "a", "count": 3}, {"path": "a", "count": 3.0}),
        ({"path": "a", "count": 3}, {"path": "a", "count": "3"}),
        ({"path": "a", "force": True}, {"path": "a", "force": "True"}),
        ({"path": "a", "items": [1, 2]}, {"path": "a", "items": "[1, 2.0]"}),
        ({"path": "a"}, {"path": "a", "count": None}),
        ({"path": "a"}, {"path": "a", "limit": 10}),
        ({"path": "a"}, {"path": "a", "limit": "10"}),
    ],
)
def test_differences_that_tools_ignore_are_normalised(one, other):
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"path": "a"}, {"path": "A"}),
        ({"path": "a"}, {"path": "b"}),
        ({"path": "a"}, {}),
        ({"path": None}, {}),
        ({"path": "if a:\n  b"}, {"path": "if a:\nb"}),
        ({"path": "3"}, {"path": 3}),
        ({"path": "a", "either": "3"}, {"path": "a", "either": 3}),
        ({"path": "a", "items": [1, 2]}, {"path": "a", "items": [2, 1]}),
        ({"path": "a", "force": True}, {"path": "a", "force": 1}),
        ({"path": "a", "limit": 11}, {"path": "a"}),
        ({"path": "a", "count": "three"}, {"path": "a", "count": "3"}),
    ],
)
def test_differences_that_matter_to_tools_are_kept(one, other):
    assert not same(one, other)


def test_keys_include_the_tool():
    assert exact_key("a", {}) != exact_key("b", {})
    assert normalised_key("a", {}, {}) != normalised_key("b", {}, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("aB 1.\n[]", max_size=6),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(list(SCHEMA["properties"])), part, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_normalisation_is_idempotent(value):
    once = normalised(value, SCHEMA)
    assert normalised(once, SCHEMA) == once


@given(JSON)
def test_equal_arguments_have_equal_keys(value):
    again = json.loads(json.dumps(value))
    assert exact_key("t", value) == exact_key("t", again)
    assert normalised_key("t", value, {"t": SCHEMA}) == normalised_key("t", again, {"t": SCHEMA})


def call(call_id, name="look", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_replies_are_matched_in_any_order():
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call("1", "one"), call("2", "two", '{"a": 1}')]},
        {"role": "tool", "tool_call_id": "2", "content": "second"},
        {"role": "tool", "tool_call_id": "1", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [call("3", "three", "[1]")]},
    ]
    made = calls_in(messages)
    assert [(item.name, item.arguments, item.reply, item.message) for item in made] == [
        ("one", {}, "", 1),
        ("two", {"a": 1}, "second", 1),
        ("three", [1], None, 4),
    ]


def test_a_reply_belongs_to_the_last_call_with_its_id():
    """Some agents restart the numbering in each turn."""
    turn = {"role": "assistant", "content": None, "tool_calls": [call("call_0")]}
    replies = [{"role": "tool", "tool_call_id": "call_0", "content": text} for text in ("first", "second")]
    assert [item.reply for item in calls_in([turn, replies[0], turn, replies[1]])] == ["first", "second"]


@pytest.mark.parametrize("arguments", ["{", "not json", '"text"', "[" * 100_000])
def test_arguments_that_are_not_an_object_do_not_raise(arguments):
    (made,) = calls_in([{"role": "assistant", "tool_calls": [call("1", arguments=arguments)]}])
    assert not isinstance(made.arguments, dict)


def test_parameters_of_a_tool_without_parameters():
    assert parameters_of([{"function": {"name": "a"}}, {"function": {"name": "b", "parameters": None}}]) == {"a": {}, "b": {}}


@pytest.mark.parametrize(
    ("reply", "failed"),
    [("error: no such file", True), ('{"error": "x"}', True), ("Error: no", True), ("no errors", False), ("", False)],
)
def test_errors_are_recognised_by_their_first_word(reply, failed):
    assert is_error(reply) is failed
