"""The recorded verifier: worked cases, and properties of all sequences of calls."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.types import Task
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.scoring.verifiers.base import state_progress
from tracewheel.scoring.verifiers.recorded import common_length

VERIFIER = make_verifier("recorded")
CALLS = st.text("abc", max_size=6)


def task_of(*references):
    goal = {"references": [[{"name": key, "arguments": {}, "key": key} for key in reference] for reference in references]}
    return Task("t", "recorded:x", "f", 1, "p", {}, goal, "recorded", "fp")


def verify(made, *references, unrecorded=()):
    state = {"task": "x", "calls": [{"name": key, "arguments": {}, "key": key} for key in made]}
    state["unrecorded"] = [{"name": name, "arguments": {}} for name in unrecorded]
    return VERIFIER.verify(task_of(*references), state)


@pytest.mark.parametrize(
    ("made", "references", "total", "recall", "precision", "first"),
    [
        ("abc", ["abc"], 1.0, 1.0, 1.0, 1.0),
        ("", ["abc"], 0.0, 0.0, 0.0, 0.0),
        ("ab", ["abc"], 2 / 3, 2 / 3, 1.0, 1.0),
        ("abcc", ["abc"], 3 / 4, 1.0, 3 / 4, 1.0),
        ("cba", ["abc"], 1 / 3, 1 / 3, 1 / 3, 0.0),
        ("xbc", ["abc"], 2 / 3, 2 / 3, 2 / 3, 0.0),
        ("ab", ["xyz", "ab"], 1.0, 1.0, 1.0, 1.0),
        ("ab", ["ab", "xyz"], 1.0, 1.0, 1.0, 1.0),
        ("", [""], 1.0, 1.0, 0.0, 1.0),
        ("a", [""], 0.0, 1.0, 0.0, 0.0),
    ],
)
def test_worked_cases(made, references, total, recall, precision, first):
    assert verify(made, *references) == (
        pytest.approx(total),
        {"recall": pytest.approx(recall), "precision": pytest.approx(precision), "first_call": first},
    )


def test_an_unrecorded_call_is_never_a_reward():
    with pytest.raises(ValueError, match="unrecorded call of buy"):
        verify("abc", "abc", unrecorded=["buy"])


def test_without_a_success_verification_is_an_error():
    with pytest.raises(ValueError, match="no successful trace"):
        verify("abc")


@given(CALLS, CALLS)
def test_common_length_is_the_longest_common_subsequence(one, other):
    subsequences = {"".join(chosen) for size in range(len(one) + 1) for chosen in itertools.combinations(one, size)} & {
        "".join(chosen) for size in range(len(other) + 1) for chosen in itertools.combinations(other, size)
    }
    assert common_length(one, other) == max(map(len, subsequences))


@given(CALLS, st.lists(CALLS, min_size=1, max_size=3))
def test_the_total_is_1_only_for_the_calls_of_a_success(made, references):
    total, parts = verify(made, *references)
    assert 0.0 <= total <= 1.0 and all(0.0 <= value <= 1.0 for value in parts.values())
    assert (total == 1.0) == (made in references)
    state = {"calls": [{"key": key} for key in made], "unrecorded": []}
    assert state_progress(VERIFIER, task_of(*references), state) == total
