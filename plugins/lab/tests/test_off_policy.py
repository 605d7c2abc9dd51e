"""Off-policy estimates: against numbers worked out by hand, a known truth, and the trainer's log-probabilities."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tracewheel import DataError, InputError, rescored
from tracewheel.config import PolicyConfig
from tracewheel_lab.logged_episodes import PreviewPlan, episodes_of_traces, preview_policy, usable_episodes
from tracewheel_lab.off_policy import Limits, LoggedEpisodes, preview, relative_weights, task_values

ANY = Limits(effective=0.0, effective_tasks=0.0)


def logged(weights, rewards, tasks, families=None, turn_rewards=None):
    ratios = [np.log(np.atleast_1d(weight)) for weight in weights]
    families = np.array(families or ["f"] * len(rewards))
    return LoggedEpisodes(ratios, np.array(rewards, dtype=float), np.array(tasks), families, turn_rewards)


def test_self_normalised_by_hand():
    found = preview(logged([3.0, 1.0], [1.0, 0.0], ["a", "b"]), ANY)
    assert found.estimates["self_normalised"].value == pytest.approx(0.75)
    assert found.effective == pytest.approx(16 / 10)
    assert found.logged == 0.5 and found.estimates["self_normalised"].gain == pytest.approx(0.25)
    assert found.mean_weight == pytest.approx(2.0)


def test_doubly_robust_by_hand():
    # Values: an episode's task has one other episode, mixed with two of the mean of the family's other task.
    values = [(0 + 2 * 0.5) / 3, (1 + 2 * 0.5) / 3, (0 + 2 * 0.5) / 3, (1 + 2 * 0.5) / 3]
    rewards = [1.0, 0.0, 1.0, 0.0]
    found = preview(logged([1.0, 1.0, 4.0, 2.0], rewards, ["a", "a", "b", "b"]), ANY)
    correction = sum(w * (r - q) for w, r, q in zip([1, 1, 4, 2], rewards, values, strict=True)) / 8
    assert found.estimates["doubly_robust"].value == pytest.approx(np.mean(values) + correction)


def test_equal_policies_give_the_logged_mean():
    found = preview(logged([1.0] * 4, [1.0, 0.0, 0.0, 1.0], ["a", "a", "b", "b"]), ANY)
    for estimate in found.estimates.values():
        assert estimate.value == pytest.approx(0.5) and estimate.gain == pytest.approx(0.0)
    assert found.effective == pytest.approx(4.0)


def test_a_value_knows_nothing_of_its_own_reward():
    tasks, families = np.array(["a", "a", "b"]), np.array(["f", "f", "f"])
    before = task_values(np.array([0.0, 1.0, 1.0]), tasks, families)
    after = task_values(np.array([9.0, 1.0, 1.0]), tasks, families)
    assert before[0] == after[0] and before[1] != after[1]


def test_per_decision_by_hand():
    turn_rewards = [np.array([1.0, 0.0]), np.array([0.0, 2.0]), np.array([1.0])]
    weights = [[2.0, 3.0], [1.0, 1.0], [1.0]]
    episodes = logged(weights, [1.0, 2.0, 1.0], ["a", "b", "c"], turn_rewards=turn_rewards)
    first = (2 * 1 + 1 * 0 + 1 * 1) / 4
    second = (6 * 0 + 1 * 2 + 1 * 0) / 8  # the third has ended: it keeps its weight
    assert preview(episodes, ANY).estimates["per_decision"].value == pytest.approx(first + second)


def test_no_weight_overflows():
    assert relative_weights(np.array([900.0, -900.0])).tolist() == [2.0, 0.0]


def test_what_the_log_does_not_hold_widens_intervals_by_the_worst_cases():
    """A quarter of the log is missing, and the mean weight is 0.8: 0.4 of the challenger's episodes may have any reward."""
    found = preview(logged([0.8] * 3, [1.0, 1.0, 0.0], ["a", "b", "c"]), ANY)
    more = preview(replace(logged([0.8] * 3, [1.0, 1.0, 0.0], ["a", "b", "c"]), missing=1), ANY)
    assert found.unseen == pytest.approx(0.2) and more.unseen == pytest.approx(0.4) and more.missing == 0.25
    (low, high), whole = (
        more.estimates["self_normalised"].interval,
        preview(logged([1.0] * 3, [1.0, 1.0, 0.0], ["a", "b", "c"]), ANY),
    )
    expected = whole.estimates["self_normalised"].interval
    assert (low, high) == pytest.approx((0.6 * expected.low, 0.6 * expected.high + 0.4))
    gain, expected = more.estimates["self_normalised"].gain_interval, whole.estimates["self_normalised"].gain_interval
    assert gain == pytest.approx((0.6 * expected.low - 0.4, 0.6 * expected.high + 0.4))


def test_users_with_many_tasks_are_few_words():
    rewards, tasks = [float(number < 60) for number in range(120)], [str(number) for number in range(120)]
    alone = preview(logged([1.0] * 120, rewards, tasks))
    users = preview(replace(logged([1.0] * 120, rewards, tasks), users=np.repeat(np.arange(30), 4).astype(str)))
    widths = [found.estimates["self_normalised"].interval for found in (alone, users)]
    assert widths[1].high - widths[1].low == pytest.approx(2 * (widths[0].high - widths[0].low), rel=0.05)
    assert users.effective_tasks == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("weights", "tasks", "words"),
    [
        ([1.0] * 10, range(10), "about 10.0 count"),
        ([1.0] * 120, [number % 3 for number in range(120)], "3.0 tasks or users count"),
        ([0.7] * 120, range(120), "the mean weight is 0.70: about 30% of what the challenger does is not in the log"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(weights, tasks, words):
    refusal = preview(logged(weights, [1.0] * len(weights), [str(task) for task in tasks])).refusal
    assert words in refusal and "log more episodes" in refusal


def test_a_log_that_misses_much_of_the_behaviour_is_refused():
    episodes = logged([1.0] * 120, [1.0] * 120, [str(task) for task in range(120)])
    assert "reward of 25% of its episodes" in preview(replace(episodes, missing=40)).refusal
    assert not preview(replace(episodes, missing=20)).refusal
    assert "instead of 1" in preview(logged([2.0] * 120, [1.0] * 120, [str(task) for task in range(120)])).refusal


def test_not_finite_is_an_error():
    with pytest.raises(ValueError, match="finite"):
        preview(logged([1.0, 1.0], [math.nan, 1.0], ["a", "b"]))


def test_intervals_cover_the_truth_of_a_bandit():
    """Tasks of differing difficulty, two actions; the challenger takes the good one more often."""
    stream = np.random.default_rng(3)
    covered, errors = {"self_normalised": 0, "doubly_robust": 0}, {"self_normalised": [], "doubly_robust": []}
    logged_rate, rate, runs = 0.5, 0.8, 200
    for _ in range(runs):
        difficulty = stream.beta(1.0, 1.0, 50)
        good = stream.random((50, 4)) < logged_rate
        rewards = (stream.random((50, 4)) < difficulty[:, None] * np.where(good, 1.0, 0.3)).ravel()
        weights = np.where(good, rate / logged_rate, (1 - rate) / (1 - logged_rate)).ravel()
        found = preview(logged(weights, rewards, np.repeat(np.arange(50), 4).astype(str)))
        truth = 0.5 * (rate + (1 - rate) * 0.3)
        assert not found.refusal
        for name in covered:
            estimate = found.estimates[name]
            covered[name] += estimate.interval.low <= truth <= estimate.interval.high
            errors[name].append(estimate.value - truth)
    for name, count in covered.items():
        assert 0.91 <= count / runs <= 0.99, name
        assert abs(np.mean(errors[name])) < 0.01


@pytest.fixture
def episodes(versions):
    """Two sampled turns of an episode, as a trajectory of version 1, and one with a fork."""
    ids = [5, 9, 30, 31, 7, 40, 41, 42]
    mask = [0, 0, 1, 1, 0, 1, 1, 1]
    stored = [0.0, *versions.logprobs(1, ids, 0.7)]
    turns = [{"start": 2, "end": 4}, {"start": 5, "end": 8}]
    row = {"id": "e", "token_ids": ids, "action_mask": mask, "turns": json.dumps(turns), "forks": "[]", "task_id": "t"}
    row |= {"logprobs": [value * acted for value, acted in zip(stored, mask, strict=True)], "temperature": 0.7}
    return pd.DataFrame([row | {"stop_reason": "finished", "total": 1.0, "family": "f"}])


def test_rescored_are_the_trainers_log_probabilities(versions, episodes):
    own = rescored(PolicyConfig(base=versions.policy(1).base), versions.policy(1), episodes)[0]
    assert own == pytest.approx(episodes["logprobs"][0], abs=1e-4)
    other = rescored(PolicyConfig(base=versions.policy(1).base), versions.policy(2), episodes)[0]
    mask = np.array(episodes["action_mask"][0])
    fresh = np.array([0.0, *versions.logprobs(2, episodes["token_ids"][0], 0.7)]) * mask
    assert other == pytest.approx(fresh, abs=1e-4)


def test_episodes_that_no_weight_fits_are_counted(episodes):
    rows = pd.concat([episodes] * 5, ignore_index=True)
    rows.at[1, "total"] = math.nan
    rows.at[2, "stop_reason"] = "infrastructure_failed"
    rows.at[3, "turns"] = json.dumps([{"start": 2, "end": 4, "forced": 1}])
    rows.at[4, "logprobs"] = [math.nan] * 8
    usable = usable_episodes(rows)
    assert len(usable.frame) == 1
    assert usable.left_out == {
        "unscored": 1, "the infrastructure failed": 1, "tokens chosen by exploration": 1, "log-probabilities are not finite": 1,
    }  # fmt: skip


def test_traces_with_tokens_are_episodes(versions, episodes, config, tmp_path):
    tokens = {name: episodes[name][0] for name in ("token_ids", "action_mask", "logprobs")}
    rows = [
        {"id": f"{number}", "task": f"t{number}", "outcome": outcome, "tokens": json.dumps(own), "info": '{"temperature": 0.7}'}
        for number, (outcome, own) in enumerate([(1.0, tokens), (0.0, tokens), (None, tokens), (1.0, None)])
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "traces.parquet")
    read = episodes_of_traces([tmp_path / "traces.parquet"])
    assert len(read) == 4 and read["turns"][0] == [{"start": 2, "end": 4}, {"start": 5, "end": 8}]
    found = preview_policy(config, read, PreviewPlan(versions.policy(1), None, Limits()))
    assert found["episodes"] == 2 and found["left_out"] == {"unscored": 1, "no sampled tokens with log-probabilities": 1}
    assert found["effective"] == pytest.approx(2.0, abs=1e-3) and "reward of 50% of its episodes" in found["refusal"]
    assert found["estimates"]["self_normalised"]["value"] == pytest.approx(0.5, abs=1e-3)
    with pytest.raises(DataError, match="no trace has tokens"):
        pd.DataFrame(rows[3:]).to_parquet(tmp_path / "none.parquet")
        episodes_of_traces([tmp_path / "none.parquet"])


def test_top_p_is_refused(versions, episodes, config):
    sections = config
    cut = sections.model_copy(update={"rollout": sections.rollout.model_copy(update={"top_p": 0.9})})
    with pytest.raises(InputError, match="before top-p"):
        preview_policy(cut, episodes, PreviewPlan(versions.policy(1), None, Limits()))
