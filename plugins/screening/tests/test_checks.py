"""A batch that differs from its history beyond chance is held, and an honest one is not."""

import random

import pytest
from scipy.stats import betabinom

from tracewheel_screening.batch_profile import BatchProfile, short_hash
from tracewheel_screening.checks import TESTS, beta_of, predictive_tail, reasons, screen
from tracewheel_screening.settings import ScreeningSettings


def night(seed, records=80, **changed):
    """An honest night: 2% of rewards disagree, 2% in quarantine, 40 users of about equal weight."""
    stream = random.Random(seed)
    users = [f"u{stream.randrange(40)}" for _ in range(records)]
    tasks = [f"t{stream.randrange(400)}" for _ in range(records)]
    rate = lambda share: sum(stream.random() < share for _ in range(records))  # noqa: E731
    names = {kind: counted(values) for kind, values in (("user", users), ("task", tasks))}
    known = {
        "read": records,
        "kept": records,
        "replayed": records,
        "rewarded": records,
        "disagreeing": rate(0.02),
        "quarantined": rate(0.02),
        "names": names,
        "named": {"user": records, "task": records},
        "users": sorted(map(short_hash, set(users))),
    }
    return BatchProfile(**(known | changed))


def counted(values):
    counts = {value: values.count(value) for value in values}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


HISTORY = [night(seed) for seed in range(20)]


def held(batch, history=HISTORY, **config):
    return [result.check for result in reasons(screen(batch, history, ScreeningSettings(**config)))]


def test_honest_nights_pass():
    assert [check for seed in range(100, 200) for check in held(night(seed), HISTORY)] == []


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"disagreeing": 16}, "rewards"),
        ({"quarantined": 70}, "quarantine"),
        ({"other_replies": 40}, "replies"),
        ({"names": {"user": {"u1": 40, **{f"v{n}": 1 for n in range(40)}}}}, "user"),
        ({"names": {"task": {"t1": 40, **{f"v{n}": 1 for n in range(40)}}}}, "task"),
        ({"users": [f"new{n}" for n in range(60)]}, "new_users"),
        ({"judge": 1, "judge_texts": {"a": 1}}, "judge"),
        ({"future": 20}, "future"),
    ],
)
def test_poison_is_held_for_its_reason(changed, check):
    assert held(night(1000, **changed)) == [check]
    assert held(night(1000, **changed), off=[check]) == []


def test_the_first_batch_is_judged_only_by_what_needs_no_history():
    assert held(night(1, disagreeing=40, quarantined=30), []) == []
    assert held(night(1, judge=1, judge_texts={"a": 1}), []) == ["judge"]
    said = {result.check: result for result in screen(night(1, disagreeing=40), [], ScreeningSettings())}
    assert said["rewards"].severity == "said"
    assert "40 of 80" in said["rewards"].sentence


def test_words_of_a_released_batch_hold_no_other_and_new_words_do():
    released = [*HISTORY, night(50, judge=1, judge_texts={"a": 1})]
    assert held(night(51, judge=1, judge_texts={"a": 1}), released) == []
    assert held(night(51, judge=1, judge_texts={"b": 1}), released) == ["judge"]


def test_nights_that_differ_make_the_test_patient():
    """Rewards that disagree in bursts: a further burst is no surprise."""
    bursts = [night(seed, disagreeing=20 if seed % 4 == 0 else 0) for seed in range(20)]
    assert held(night(99, disagreeing=20), bursts) == []
    assert held(night(99, disagreeing=20)) == ["rewards"]


def flips(night_number):
    """Half a point more each night."""
    return round(80 * (0.02 + 0.005 * night_number))


def test_rewards_that_are_flipped_a_little_more_each_night_are_held_before_they_are_history():
    history = [night(seed) for seed in range(30)]
    for number in range(1, 31):
        batch = night(500 + number, disagreeing=flips(number))
        if held(batch, history):
            break
        history.append(batch)
    assert 5 < number <= 20
    (found,) = reasons(screen(batch, history, ScreeningSettings()))
    assert found.check == "rewards" and "in the last 14 nights" in found.sentence


def test_a_release_begins_the_window_and_its_reference_anew():
    slow = [*HISTORY, *(night(500 + number, disagreeing=flips(number)) for number in range(1, 12))]
    batch = night(600, disagreeing=flips(12))
    assert [one.check for one in reasons(screen(batch, slow, ScreeningSettings()))] == ["rewards"]
    assert not reasons(screen(batch, slow, ScreeningSettings(), since_release=3))


def test_a_stranger_with_half_of_the_traffic_is_held_where_somebody_always_had_half():
    def busy(seed, name):
        own = [f"u{number % 40}" for number in range(40)]
        counts = {name: 40, **counted(own)}
        return night(seed, names={"user": counts}, users=sorted(map(short_hash, counts)))

    history = [busy(seed, "customer") for seed in range(20)]
    assert held(busy(99, "customer"), history) == []
    assert held(busy(99, "stranger"), history) == ["new_users"]


def test_the_level_is_the_budget_over_nights_and_tests():
    results = screen(night(1), HISTORY, ScreeningSettings())
    assert {result.level for result in results if result.p is not None} == {1.0 / (365 * TESTS)}


@pytest.mark.parametrize(("count", "total", "a", "b"), [(1, 10, 0.5, 20.0), (7, 60, 2.0, 98.0), (3000, 100_000, 2.0, 98.0)])
def test_the_tail_is_scipys(count, total, a, b):
    assert predictive_tail(count, total, a, b) == pytest.approx(betabinom.sf(count - 1, total, a, b), rel=1e-6, abs=1e-300)


def test_a_long_history_does_not_make_the_next_night_certain():
    a, b = beta_of([(200, 10_000)] * 100, most=100.0)
    assert a + b == pytest.approx(100.0)
    assert a / (a + b) == pytest.approx(0.02, rel=1e-2)
