"""Trials of learning rates: what is chosen, from what, and where a number is needed."""

import math

import pytest
from pydantic import ValidationError

from tracewheel.config import RateTrialSections, RetrainConfig, UpdateSections
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_json
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.learner.rate_trials import TRIALS_FILE, choose_rate, try_rates
from tracewheel.learner.update_files import UpdateFiles

RATES = (1e-5, 1e-3, 1e-1)


@pytest.fixture
def trial(profile_with, trajectories, rewards, adapter, score_file, tmp_path):
    def run(rewards=rewards):
        config = profile_with({"learning_rate": "auto"}, rate_trials={"rates": RATES})
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        scores = score_file(tmp_path / "scores.parquet", trajectories, rewards)
        files = UpdateFiles([trajectories], [scores], adapter.parent, adapter, out)
        return try_rates(RateTrialSections.of(config), files), out

    return run


def test_the_largest_rate_that_stays_near_the_start_is_chosen_and_nothing_else_is_kept(trial):
    found, out = trial()
    moved = [item["kl"] for item in found["trials"]]
    assert [item["rate"] for item in found["trials"]] == list(RATES)
    assert moved == sorted(moved)
    assert moved[0] < 1e-4 and moved[-1] > 1.0
    assert found["learning_rate"] == max(item["rate"] for item in found["trials"] if item["kl"] <= 0.01) < 0.1
    assert [path.name for path in out.iterdir()] == [TRIALS_FILE]
    assert read_json(out / TRIALS_FILE) == found
    assert trial()[0] == found, "the same again"


def test_tasks_without_a_signal_are_an_error(trial, rewards):
    with pytest.raises(DataError, match="one whose rewards differ, among those of the first iteration"):
        trial(rewards=[0.0] * len(rewards))


@pytest.mark.parametrize(
    ("moved", "rate"),
    [([1e-6, 1e-4, 1e-2], 1e-3), ([1e-6, 0.5, 1e-4], 1e-5), ([1.0, 2.0, 3.0], 1e-5), ([1e-6, 1e-5, math.nan], 1e-3)],
)
def test_the_choice_ends_at_the_first_rate_beyond_the_bound(moved, rate):
    trials = [{"rate": rate, "kl": kl} for rate, kl in zip(RATES, moved, strict=True)]
    assert choose_rate(trials, 0.005) == rate


def test_a_single_update_needs_a_number(profile_with):
    with pytest.raises(ConfigError, match=r"learner\.learning_rate: auto is found by the trials of `tracewheel retrain`"):
        learning_rate(UpdateSections.of(profile_with({"learning_rate": "auto"})), 1)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        ({"kind": "dpo"}, "set a number for DPO"),
        ({"kind": "ppo"}, "warmup_iterations"),
        ({"backend": {"kind": "deepspeed"}}, "one process"),
    ],
)
def test_where_trials_are_impossible_the_profile_is_refused(learner, message):
    with pytest.raises(ValidationError, match=message):
        RetrainConfig.model_validate({"name": "t", "learner": {**learner, "learning_rate": "auto"}})
