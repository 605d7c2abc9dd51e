"""The loop's fixed choices."""

import pytest

from tracewheel.config import RetrainConfig, SamplerConfig, TrainingConfig
from tracewheel.core.types import Score
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.schedule import evaluation_seed, has_room, observe_scores, rollout_seed, validates, validation_rate
from tracewheel.scoring.score import write_scores


def test_seeds_differ_by_what_they_are_for_and_repeat():
    seeds = [rollout_seed(seed, iteration) for seed in (0, 1) for iteration in (1, 2)]
    seeds += [evaluation_seed(seed, split) for seed in (0, 1) for split in ("validation", "held_out")]
    assert len(set(seeds)) == 8
    assert rollout_seed(1, 2) == seeds[3]


@pytest.mark.parametrize(
    ("iterations", "every", "expected"), [(5, 2, [2, 4, 5]), (4, 2, [2, 4]), (2, 5, [2]), (3, 1, [1, 2, 3])]
)
def test_every_few_iterations_and_the_last_are_validated(iterations, every, expected):
    training = TrainingConfig(iterations=iterations, validate_every=every)
    assert [number for number in range(1, iterations + 1) if validates(training, number)] == expected


def test_candidates_rank_by_the_mean_of_both_rates():
    assert validation_rate({"greedy": {"rate": 0.5}, "sampled": {"rate": 0.25}}) == 0.375
    assert validation_rate({"greedy": {"rate": None}, "sampled": {"rate": 0.5}}) == 0.25


def test_the_sampler_counts_scored_outcomes_only(tmp_path):
    def score(number, task, status, success):
        breakdown = {} if success is None else {"success": success}
        return Score(f"t{number}", task, task, status, success, breakdown)

    outcomes = [
        ("a", "scored", 1.0),
        ("a", "scored", 0.0),
        ("a", "scored", 1.0),
        ("a", "unscored", None),
        ("b", "unscored", None),
    ]
    write_scores(tmp_path / "scores.parquet", [score(i, *outcome) for i, outcome in enumerate(outcomes)])
    sampler = TaskSampler(SamplerConfig(), ["a", "b"], seed=0)
    observe_scores(sampler, tmp_path / "scores.parquet")
    assert sampler.posterior("a") == (3.0, 2.0)
    assert sampler.posterior("b") == (1.0, 1.0)


def test_an_iteration_begins_only_with_room_for_all_its_episodes():
    config = RetrainConfig.model_validate(
        {"name": "t", "training": {"tasks_per_iteration": 4, "episodes": 100}, "rollout": {"group_size": 8}}
    )
    wanted = config.episodes_per_iteration
    assert wanted == 32
    assert has_room(config.training.episodes, 68, wanted) and not has_room(config.training.episodes, 69, wanted)
    assert has_room(None, 10**9, wanted), "without a budget there is always room"
