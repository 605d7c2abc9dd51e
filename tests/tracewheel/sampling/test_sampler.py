"""The task sampler: weights by hand, seeded choices, and resuming."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.config import SamplerConfig
from tracewheel.core.errors import DataError
from tracewheel.sampling.sampler import TaskSampler, beta_below

TASKS = [f"task-{index}" for index in range(12)]


def sampler(seed=0, tasks=TASKS, **values):
    return TaskSampler(SamplerConfig(**values), tasks, seed)


@pytest.mark.parametrize(
    "alpha, beta, x, expected",
    [
        (1, 1, 0.6, 0.6),
        (4, 1, 0.6, 0.6**4),
        (1, 4, 0.6, 1 - 0.4**4),
        (7.5, 7.5, 0.5, 0.5),
        (2.5, 1, 0.3, 0.3**2.5),
        # P(at least 2 of 4 at chance 0.6) = 1 - 0.4^4 - 4 * 0.6 * 0.4^3
        (2, 3, 0.6, 1 - 0.0256 - 0.1536),
        (3, 9, 0.0, 0.0),
        (3, 9, 1.0, 1.0),
    ],
)
def test_beta_below_matches_values_worked_by_hand(alpha, beta, x, expected):
    assert beta_below(alpha, beta, x) == pytest.approx(expected, abs=1e-7)


def test_difficulty_favours_tasks_solved_less_often_than_the_target():
    choices = sampler(tasks=["failed", "mastered", "new"])
    choices.observe("failed", 0, 8)
    choices.observe("mastered", 3, 0)
    weights = choices.weights()
    failed, mastered = 1 - 0.4**9, 0.6**4
    assert weights["failed"] == 1.0
    assert weights["mastered"] == pytest.approx(mastered / failed, rel=1e-5)
    assert weights["new"] == pytest.approx(0.6 / failed, rel=1e-5)


def test_learnability_is_the_posterior_mean_of_p_times_one_minus_p():
    choices = sampler(kind="learnability", tasks=["even", "mastered", "new"])
    choices.observe("even", 4, 4)
    choices.observe("mastered", 8, 0)
    weights = choices.weights()
    assert weights["mastered"] == pytest.approx((9 * 1 / (10 * 11)) / (5 * 5 / (10 * 11)))
    assert weights["new"] == pytest.approx((1 / 6) / (25 / 110))


def test_the_floor_bounds_weights_and_uniform_ignores_evidence():
    choices = sampler(tasks=["failed", "mastered"])
    choices.observe("failed", 0, 8)
    choices.observe("mastered", 100, 0)
    assert choices.weights() == {"failed": 1.0, "mastered": 0.1}
    same = sampler(kind="uniform", tasks=["failed", "mastered"])
    same.observe("failed", 0, 8)
    assert same.weights() == {"failed": 1.0, "mastered": 1.0}


def test_decay_shrinks_evidence_and_drops_tasks_no_longer_offered():
    choices = sampler(tasks=["kept"])
    choices.observe("kept", 6, 2)
    choices.observe("gone", 1, 0)
    choices.decay()
    assert choices.posterior("kept") == (4.0, 2.0)
    for _ in range(7):
        choices.decay()
    assert set(choices.to_state()["evidence"]) == {"kept"}


def test_earlier_evidence_counts_less_when_a_task_is_rolled_out_again():
    choices = sampler(tasks=["again", "once"])
    choices.observe("again", 0, 8)
    choices.observe("once", 0, 8)
    choices.observe("again", 6, 2)
    assert choices.posterior("again") == (1.0 + 6.0, 1.0 + 4.0 + 2.0)
    assert choices.posterior("once") == (1.0, 9.0)


def test_selected_tasks_are_distinct_and_depend_on_seed_and_iteration():
    first = sampler().select(5, iteration=0)
    assert len(set(first)) == 5 and set(first) <= set(TASKS)
    assert first == sampler().select(5, iteration=0)
    assert first == sampler(tasks=list(reversed(TASKS))).select(5, iteration=0)
    assert first != sampler().select(5, iteration=1)
    assert first != sampler(seed=1).select(5, iteration=0)
    assert sorted(sampler().select(99, iteration=0)) == sorted(TASKS)


def test_a_second_selection_continues_the_first():
    """Tasks left out do not change the order of the others."""
    first = sampler().select(5, iteration=1)
    assert first + sampler().select(4, iteration=1, exclude=first) == sampler().select(9, iteration=1)
    assert sampler().select(5, iteration=1, exclude=TASKS) == []


def test_selection_follows_the_weights():
    choices = sampler(kind="difficulty", tasks=["failed", "mastered"])
    choices.observe("failed", 0, 8)
    choices.observe("mastered", 50, 0)
    counts = Counter(choices.select(1, iteration)[0] for iteration in range(2000))
    assert counts["failed"] / 2000 == pytest.approx(1 / 1.1, abs=0.03)


def learn(choices, iterations):
    chosen = []
    for iteration in iterations:
        picked = choices.select(4, iteration)
        for position, task_id in enumerate(picked):
            successes = (iteration + position) % 9
            choices.observe(task_id, successes, 8 - successes)
        chosen.append(picked)
    return chosen


@pytest.mark.parametrize("stop", range(7))
def test_a_resumed_sampler_equals_an_uninterrupted_one(stop):
    whole = sampler()
    expected = learn(whole, range(6))
    first = sampler()
    begun = learn(first, range(stop))
    second = TaskSampler.from_state(SamplerConfig(), TASKS, 0, json.loads(json.dumps(first.to_state())))
    assert begun + learn(second, range(stop, 6)) == expected
    assert second.to_state() == whole.to_state()


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(TASKS), st.tuples(st.floats(0, 1e4), st.floats(0, 1e4))), st.integers(0, 99))
def test_state_survives_json(evidence, iteration):
    choices = sampler()
    for task_id, (successes, failures) in evidence.items():
        choices.observe(task_id, successes, failures)
    state = json.loads(json.dumps(choices.to_state()))
    copy = TaskSampler.from_state(SamplerConfig(), TASKS, 0, state)
    assert copy.to_state() == choices.to_state()
    assert copy.select(6, iteration) == choices.select(6, iteration)


@pytest.mark.parametrize(
    "text, said",
    [
        ("[]", "not a sampler state"),
        ('{"version": 99, "evidence": {}}', "not a sampler state"),
        ('{"version": 1}', "mapping of task ids"),
        ('{"version": 1, "evidence": {"a": [1]}}', "evidence of a"),
        ('{"version": 1, "evidence": {"a": [1, -2]}}', "evidence of a"),
        ('{"version": 1, "evidence": {"a": [1, NaN]}}', "evidence of a"),
        ('{"version": 1, "evidence": {"a": ["1", 2]}}', "evidence of a"),
        ('{"version": 1, "evidence": {"a": [true, 2]}}', "evidence of a"),
    ],
)
def test_a_bad_state_is_a_data_error(text, said):
    with pytest.raises(DataError, match=said):
        TaskSampler.from_state(SamplerConfig(), TASKS, 0, json.loads(text))


def test_impossible_counts_are_an_error():
    with pytest.raises(ValueError, match="not counts"):
        sampler().observe("task-0", -1, 0)
