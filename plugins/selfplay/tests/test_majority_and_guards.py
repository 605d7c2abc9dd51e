"""Votes, flips and stops, by numbers worked out by hand."""

import pytest

from tracewheel import ConfigError, Task, episode_from
from tracewheel_selfplay.guards import Limits, Round, check_groups, flip_rate, stop_reason
from tracewheel_selfplay.majority import Majority, MajorityArgs, NoMajority, vote

TASK = Task("t", "workspace", "f", 1, "Do it.", {}, {}, "majority", "f")


def episode(state, text="Done."):
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": text}]
    return episode_from(messages, 1, state)


def test_the_largest_part_is_right_in_any_order():
    episodes = [episode({"n": value}) for value in (1, 2, 1, 3, 1)]
    judge = Majority(MajorityArgs())
    verdicts = judge.verify_group(TASK, episodes)
    assert [verdict.total for verdict in verdicts] == [1, 0, 1, 0, 1]
    assert verdicts[0].parts == {"share": pytest.approx(3 / 5)}
    assert [verdict.total for verdict in judge.verify_group(TASK, episodes[::-1])] == [1, 0, 1, 0, 1]


def test_answers_are_compared_without_their_spaces():
    episodes = [episode({"n": n}, text) for n, text in enumerate(("It is 5.", "It  is 5.\n", "It is 6."))]
    assert [one.total for one in Majority(MajorityArgs(of="answer")).verify_group(TASK, episodes)] == [1, 1, 0]


def test_an_episode_without_an_answer_has_no_vote_and_is_not_right():
    """As where episodes end with a call: nothing was said, and nothing that was said is alike."""
    judge = Majority(MajorityArgs(of="answer"))
    assert all(isinstance(one, NoMajority) for one in judge.verify_group(TASK, [episode({"n": n}, "") for n in range(4)]))
    said = [episode({}, text) for text in ("", "5", "5", "5", " ")]
    verdicts = judge.verify_group(TASK, said)
    assert [one.total for one in verdicts] == [0, 1, 1, 1, 0] and verdicts[0].parts == {"share": pytest.approx(3 / 5)}


@pytest.mark.parametrize(("ends", "least"), [("a", 0.0), ("aa", 0.0), ("abc", 0.0), ("aabb", 0.0), ("aab", 0.7), ("abcd", 0.5)])
def test_a_divided_group_is_unscored_and_not_zero(ends, least):
    with pytest.raises(NoMajority):
        vote(list(ends), least)
    verdicts = Majority(MajorityArgs(least=least)).verify_group(TASK, [episode({"n": end}) for end in ends])
    assert all(isinstance(verdict, NoMajority) for verdict in verdicts) and len(verdicts) == len(ends)


def a_round(agree=90, labelled=100, length=50.0, entropy=1.0, flips=0.1):
    return Round({}, 0.7, agree, labelled, length, entropy, None, flips)


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ([a_round(), a_round()], ""),
        ([a_round(51)], ""),
        ([a_round(50)], "in 50% of 100 labelled episodes"),
        ([a_round(2, labelled=4)], "in 50% of 4 labelled episodes"),
        ([a_round(90), a_round(74)], "74% of 100 labelled episodes, 90% at first"),
        ([a_round(90), a_round(76)], ""),
        ([a_round(), a_round(flips=0.6), a_round(flips=0.6)], "60% of the majorities changed"),
        ([a_round(), a_round(flips=0.6), a_round(flips=0.4)], ""),
        ([a_round(), a_round(length=101.0)], "101 tokens, 50 at first"),
        ([a_round(), a_round(length=24.0)], "24 tokens, 50 at first"),
        ([a_round(), a_round(entropy=0.049)], "the entropy is 0.049"),
        ([a_round(labelled=0, agree=0)], ""),
        ([a_round(labelled=0, agree=0), a_round()], ""),
        ([a_round(labelled=0, agree=0), a_round(90), a_round(74)], "90% at first"),
        ([a_round(), a_round(labelled=0, agree=0), a_round(labelled=0, agree=0)], "no labelled task had a majority"),
    ],
)
def test_each_guard_stops_at_its_limit_and_not_before(rounds, says):
    said = stop_reason(rounds, Limits())
    assert (says in said) if says else said == ""


def test_groups_are_large_enough_for_a_majority():
    check_groups(3)
    with pytest.raises(ConfigError, match="2 episodes have no majority"):
        check_groups(2)


def test_flips_are_counted_where_both_rounds_have_a_majority():
    assert flip_rate({"a": "x", "b": "y"}, {"a": "x", "b": "z", "c": "q"}) == 0.5
    assert flip_rate({"a": "x"}, {"b": "x"}) is None
