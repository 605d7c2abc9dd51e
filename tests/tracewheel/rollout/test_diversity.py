"""Diversity within groups, against numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.rollout.diversity import calls_of, group_diversity, mean_distance, normalised_distance


def says(*turns):
    """Messages of an episode: a turn is a list of (tool, argument) calls, or words."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    for turn in turns:
        if isinstance(turn, str):
            messages.append({"role": "assistant", "content": turn})
            continue
        calls = [{"function": {"name": name, "arguments": f'{{"a": "{value}"}}'}} for name, value in turn]
        messages += [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": "x"}]
    return messages


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("abc", "abc", 0.0),
        ("abc", "abd", 1 / 3),  # one substitution
        ("abc", "ab", 1 / 3),  # one deletion
        ("abcd", "bcde", 2 / 4),  # one deletion, one insertion
        ("kitten", "sitting", 3 / 7),
        ("", "ab", 1.0),
        ("", "", 0.0),
        ("ab", "cd", 1.0),
    ],
)
def test_distances_match_values_worked_by_hand(one, other, distance):
    assert normalised_distance(one, other) == pytest.approx(distance)
    assert normalised_distance(other, one) == pytest.approx(distance)


def test_the_mean_over_pairs_counts_repeated_sequences_each_time():
    # Pairs of ab, ab, ac: 0, 1/2, 1/2.
    assert mean_distance(["ab", "ab", "ac"]) == pytest.approx(1 / 3)


@given(st.lists(st.text("ab", max_size=4), min_size=2, max_size=5))
def test_the_mean_covers_all_pairs(sequences):
    pairs = [
        normalised_distance(sequences[i], sequences[j]) for i in range(len(sequences)) for j in range(i + 1, len(sequences))
    ]
    assert mean_distance(sequences) == pytest.approx(sum(pairs) / len(pairs))
    assert 0.0 <= mean_distance(sequences) <= 1.0


def test_calls_are_read_from_messages():
    messages = says([("list", "/a"), ("read", "/b")], "I am done.")
    assert calls_of(messages) == (("list", '"{\\"a\\": \\"/a\\"}"'), ("read", '"{\\"a\\": \\"/b\\"}"'), ("", "I am done."))


def test_groups_are_kept_apart_and_single_episodes_left_out():
    episodes = {
        "g": says([("list", "/a")], [("finish", "")]),
        "h": says([("list", "/a")], [("finish", "")]),
    }
    groups = ["g", "g", "h", "h", "alone"]
    conversations = [
        episodes["g"],
        says([("list", "/b")], [("finish", "")]),  # the same tools, one other argument: distance 1/2
        episodes["h"],
        says([("finish", "")]),  # one call fewer: distance 1/2, and another sequence of tools
        says("alone"),
    ]
    figures = group_diversity(groups, conversations)
    assert figures == {"group_diversity": pytest.approx(0.5), "distinct_tool_sequences": pytest.approx((1 / 2 + 1) / 2)}
    assert group_diversity(["a", "b"], conversations[:2]) == {}
