"""Where a failure diverges from a success."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.curation.divergence import Path, first_divergence

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in "abc"]


def path(identity, calls):
    """A trace whose calls are letters: the tool, and behind it the argument."""
    messages = [{"role": "user", "content": "Go."}]
    for number, call in enumerate(calls):
        function = {"name": call[0], "arguments": json.dumps({"x": call[1:]})}
        messages.append({"role": "assistant", "tool_calls": [{"id": f"{number}", "type": "function", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": f"{number}", "content": "ok"})
    return Path.of(identity, messages, TOOLS)


def diverge(failed, *successes):
    return first_divergence(path("failed", failed), [path(f"win{n}", calls) for n, calls in enumerate(successes)])


@pytest.mark.parametrize(
    ("failed", "success", "step", "message", "way", "expected", "made"),
    [
        (["a1", "b1"], ["a1", "b2"], 1, 3, "arguments", "b", "b"),
        (["a1", "b1"], ["a1", "c1"], 1, 3, "tool", "c", "b"),
        (["a1"], ["a1", "c1"], 1, 3, "stopped", "c", ""),
        (["a1", "b1"], ["a1"], 1, 3, "went_on", "", "b"),
        (["b1"], ["a1"], 0, 1, "tool", "a", "b"),
        ([], ["a1"], 0, 1, "stopped", "a", ""),
    ],
)
def test_the_first_step_that_differs(failed, success, step, message, way, expected, made):
    found = diverge(failed, success)
    assert (found.step, found.message, found.way, found.expected, found.made) == (step, message, way, expected, made)
    assert found.reference == "win0" and found.reference_message == 1 + 2 * step


def test_equal_calls_or_no_success_give_no_divergence():
    assert diverge(["a1", "b1"], ["a1", "b1"]) is None
    assert diverge(["a1"]) is None


def test_the_success_followed_longest_is_compared():
    found = diverge(["a1", "b1", "c1"], ["c1"], ["a1", "b1", "c2"], ["a1", "c1"])
    assert (found.reference, found.step) == ("win1", 2)
    assert diverge(["a1", "b1"], ["a1", "c1", "c2"], ["a1", "c3"]).reference == "win1", "then the one with fewer calls"
    assert diverge(["a1", "b1"], ["a1", "c1"], ["a1", "c2", "b1"]).reference == "win1", "before that the one that shares more"


def test_missing_and_extra_calls_are_counted_by_tool():
    found = diverge(["a1", "b1", "b2", "b2"], ["a1", "b3", "c1", "b2"])
    assert found.missing == {"b": 1, "c": 1} and found.extra == {"b": 2}


CALLS = st.lists(st.sampled_from(["a1", "a2", "b1", "c1"]), max_size=5)


@given(CALLS, CALLS)
def test_calls_are_equal_before_the_step_and_differ_at_it(failed, success):
    found = diverge(failed, success)
    if found is None:
        assert failed == success
        return
    assert failed[: found.step] == success[: found.step]
    assert failed[found.step : found.step + 1] != success[found.step : found.step + 1]
    assert sum(found.missing.values()) - sum(found.extra.values()) == len(success) - len(failed)
