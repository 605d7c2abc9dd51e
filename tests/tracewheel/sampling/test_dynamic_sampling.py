"""When an iteration rolls out more tasks, how many, and its figures."""

import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.types import Score
from tracewheel.learner.advantages.group import zero_variance
from tracewheel.sampling.dynamic_sampling import count_groups, refill_size, sampling_figures
from tracewheel.scoring.score import SCORES_FILE, write_scores

MIXED, SAME = [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]


def profile(**learner):
    return RetrainConfig.model_validate({"name": "t", "training": {"tasks_per_iteration": 8}, "learner": learner})


def dynamic(**settings):
    return profile(kind="grpo", zero_variance={"kind": "dynamic", **settings})


@pytest.fixture
def round_of(tmp_path):
    """Write a round's scores: one list of rewards per group, None for an unscored sample."""

    def write(*groups):
        number = len(list(tmp_path.iterdir()))
        scores = [
            Score(f"{number}-{g}-{s}", f"task-{number}-{g}", f"task-{number}-{g}", "unscored" if r is None else "scored", r)
            for g, rewards in enumerate(groups)
            for s, r in enumerate(rewards)
        ]
        folder = tmp_path / str(number)
        folder.mkdir()
        write_scores(folder / SCORES_FILE, scores)
        return folder / SCORES_FILE

    return write


def test_groups_with_different_rewards_have_a_signal(round_of):
    groups = [MIXED, SAME, [None, None], [None, 1.0], [None, 1.0, 0.5], [0.5, 0.5 + 1e-12], [float("inf"), 1.0]]
    assert count_groups([round_of(*groups)]) == (6, 2), "the group without a scored sample does not count"
    assert count_groups([round_of(SAME), round_of(MIXED, MIXED)]) == (3, 2)


def test_with_greedy_baselines_a_group_at_its_baseline_carries_no_signal(tmp_path):
    groups = {"at it": ([1.0, 1.0], 1.0), "away": ([1.0, 1.0], 0.0), "mixed": ([1.0, 0.0], 1.0)}
    scores = [Score(f"{g}{n}", g, g, "scored", r, baseline=b) for g, (rs, b) in groups.items() for n, r in enumerate(rs)]
    write_scores(tmp_path / SCORES_FILE, scores, baselines=True)
    assert count_groups([tmp_path / SCORES_FILE]) == (3, 2)


def test_groups_with_a_signal_are_those_that_the_learner_keeps(round_of):
    import torch

    groups = [MIXED, SAME, [None, None], [None, 1.0], [None, 1.0, 0.5], [0.5, 0.5 + 1e-12]]
    rewards = torch.tensor([float("nan") if r is None else r for g in groups for r in g], dtype=torch.float64)
    names = [number for number, g in enumerate(groups) for _ in g]
    dropped = zero_variance(rewards, names).tolist()
    learned = {
        name for name, drop, reward in zip(names, dropped, rewards.tolist(), strict=True) if not drop and reward == reward
    }
    assert count_groups([round_of(*groups)])[1] == len(learned)


@pytest.mark.parametrize(
    ("rounds", "settings", "wanted"),
    [
        ([[MIXED] * 4], {"min_groups": 4}, 0),  # enough
        ([[MIXED] * 2 + [SAME] * 2], {"min_groups": 4}, 4),  # 2 missing, half carry a signal
        ([[MIXED] * 1 + [SAME] * 7], {"min_groups": 4}, 8),  # 3 missing at 1 in 8 would be 24: no more than a round's
        ([[SAME] * 8], {"min_groups": 1}, 8),  # no signal so far
        ([[MIXED] * 2 + [[None] * 4] * 4], {"min_groups": 4}, 2),  # groups that the infrastructure failed say nothing
        ([[SAME] * 8] * 3, {"min_groups": 1}, 8),  # the third refill
        ([[SAME] * 8] * 4, {"min_groups": 1}, 0),  # no fourth
        ([[MIXED, SAME], [MIXED, MIXED]], {"min_groups": 3}, 0),  # rounds add up
    ],
)
def test_the_refill_size_follows_from_missing_groups_and_their_rate(round_of, rounds, settings, wanted):
    config, scores = dynamic(**settings), [round_of(*groups) for groups in rounds]
    assert refill_size(config.learner, config.training, scores, group_size=8) == wanted


def test_without_dynamic_sampling_there_is_no_refill(round_of):
    scores = [round_of(SAME)]
    for config in (profile(kind="grpo"), profile(kind="dpo"), profile(kind="ppo")):
        assert refill_size(config.learner, config.training, scores, group_size=8) == 0
        assert sampling_figures(config.learner, scores) == {}
    config = profile(kind="dapo")
    assert refill_size(config.learner, config.training, scores, group_size=8) == 8


def test_figures_tell_whether_the_cap_was_reached(round_of):
    scores = [round_of(MIXED, SAME), round_of(SAME)]
    figures = {"sampling_rounds": 2.0, "sampled_groups": 3.0, "signal_groups": 1.0}
    assert sampling_figures(dynamic(min_groups=2).learner, scores) == {**figures, "sampling_capped": 1.0}
    assert sampling_figures(dynamic(min_groups=1).learner, scores) == {**figures, "sampling_capped": 0.0}
