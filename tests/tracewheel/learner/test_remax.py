"""ReMax: a greedy episode of each task is played, scored, kept out of training, and is the baseline of the others."""

import math
from dataclasses import replace

import pytest
import torch

from tracewheel.config import PolicyGradientConfig, RolloutSections, ScoreSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import GREEDY_FILE, Score, Trajectory
from tracewheel.learner.advantages.group import at_the_baseline, greedy_baseline_advantages
from tracewheel.learner.scored_trajectories import read_scored_trajectories
from tracewheel.learner.token_advantages import advantages_by_group
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import policy_of
from tracewheel.rollout.rollout import RolloutPlan, rollout
from tracewheel.scoring.score import read_scores, score, write_scores

NAN = math.nan
NO_KL = 0.0


def test_advantages_are_rewards_less_the_greedy_one_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.5, NAN, 1.0], dtype=torch.double)
    baselines = torch.tensor([0.25, 0.25, 0.5, 0.5, NAN], dtype=torch.double)
    assert greedy_baseline_advantages(rewards, baselines).tolist() == [0.75, -0.25, 0.0, 0.0, 0.0]
    assert at_the_baseline(rewards, baselines, ["a", "a", "b", "b", "c"]).tolist() == [False, False, True, True, True]


def test_the_gradient_has_the_mean_of_reinforce_and_less_variance():
    """Proposition 1 of the paper, on a bandit: a softmax policy of three actions, its greedy action the baseline."""
    logits = torch.tensor([0.2, 0.9, -0.5], dtype=torch.double)
    rewards = torch.tensor([0.6, 1.0, 0.3], dtype=torch.double)
    probabilities = torch.softmax(logits, 0)
    scores = torch.eye(3, dtype=torch.double) - probabilities  # the gradient of log p for each action
    true = (probabilities * rewards) @ scores

    def moments(weights):
        gradients = weights[:, None] * scores
        mean = probabilities @ gradients
        return mean, float(probabilities @ (gradients - mean).square().sum(1))

    plain, with_baseline = moments(rewards), moments(greedy_baseline_advantages(rewards, rewards[1].expand(3)))
    torch.testing.assert_close(plain[0], true)
    torch.testing.assert_close(with_baseline[0], true)
    assert with_baseline[1] < plain[1]


@pytest.fixture(scope="module")
def rolled_out(config, base, adapter, tasks, tmp_path_factory):
    """Four sampled and one greedy episode of each of three tasks."""
    out = tmp_path_factory.mktemp("rollout")
    plan = RolloutPlan(tasks[::3], samples=4, seed=6, greedy_baseline=True)
    return out, rollout(RolloutSections.of(config), policy_of(adapter, base), plan, out)


@pytest.fixture(scope="module")
def scores(rolled_out, config, tasks, tmp_path_factory):
    out = tmp_path_factory.mktemp("scores")
    return out / "scores.parquet", score(ScoreSections.of(config), tasks, rolled_out[0] / "trajectories.parquet", out)


def test_greedy_episodes_are_stored_apart_and_change_no_sampled_one(
    rolled_out, trajectories, config, base, adapter, tasks, tmp_path
):
    out, metrics = rolled_out
    assert (metrics["episodes"], metrics["greedy_episodes"]) == (15, 3)
    sampled, plain = (read_records(path, Trajectory) for path in (out / "trajectories.parquet", trajectories))
    assert [each.token_ids for each in sampled] == [each.token_ids for each in plain]
    rollout(
        RolloutSections.of(config), policy_of(adapter, base), RolloutPlan(tasks[::3], samples=1, seed=1, greedy=True), tmp_path
    )
    alone = read_records(tmp_path / "trajectories.parquet", Trajectory)
    greedy = read_records(out / GREEDY_FILE, Trajectory)
    assert [each.token_ids for each in greedy] == [each.token_ids for each in alone]
    assert [each.task_id for each in greedy] == [task.id for task in tasks[::3]]


def test_scores_have_the_greedy_total_and_pass_rates_do_not(rolled_out, scores, config, tasks, tmp_path):
    file, metrics = scores
    found = read_scores(file)
    assert len(found) == metrics["scored"] == 12 and metrics["greedy"]["scored"] == 3
    alone = tmp_path / "alone.parquet"
    write_records(alone, read_records(rolled_out[0] / GREEDY_FILE, Trajectory))
    score(ScoreSections.of(config), tasks, alone, tmp_path / "out")
    expected = {item.task_id: item.total for item in read_scores(tmp_path / "out" / "scores.parquet")}
    assert {item.task_id: item.baseline for item in found} == expected
    assert "baseline" not in read_table(tmp_path / "out" / "scores.parquet"), "without greedy episodes the column is absent"


def test_an_unscored_greedy_episode_is_no_baseline_of_0(rolled_out, config, tasks, tmp_path):
    sampled = read_records(rolled_out[0] / "trajectories.parquet", Trajectory)
    greedy = read_records(rolled_out[0] / GREEDY_FILE, Trajectory)
    write_records(tmp_path / "trajectories.parquet", sampled)
    write_records(tmp_path / GREEDY_FILE, [replace(each, stop_reason="infrastructure_failed") for each in greedy])
    score(ScoreSections.of(config), tasks, tmp_path / "trajectories.parquet", tmp_path / "out")
    file = tmp_path / "out" / "scores.parquet"
    frame = read_scored_trajectories([tmp_path / "trajectories.parquet"], [file])
    assert frame["baseline"].isna().all()
    table = TrajectoryTable(frame.assign(reward=frame["total"].fillna(0.0)))
    for kind, kept in (("skip", 0), ("keep", len(sampled))):
        settings = PolicyGradientConfig(kind="remax", zero_variance={"kind": kind})
        positions, advantages = advantages_by_group(settings, table, NO_KL)
        assert len(positions) == kept and not any(any(row) for row in advantages)


def test_an_update_uses_the_baselines_and_trains_on_sampled_episodes_alone(
    rolled_out, profile_with, score_file, adapter, tmp_path
):
    """Each group's rewards are all equal and differ from the baseline: no other algorithm would have a gradient."""
    trajectories = rolled_out[0] / "trajectories.parquet"
    file = score_file(tmp_path / "scores.parquet", trajectories, [1.0] * 4 + [0.0] * 4 + [0.25] * 4)
    frame = read_scored_trajectories([trajectories], [file])
    table = TrajectoryTable(frame.assign(reward=frame["total"]))
    positions, advantages = advantages_by_group(PolicyGradientConfig(kind="remax"), table, NO_KL)
    assert positions.tolist() == list(range(8)), "the last group is at its baseline"
    assert [row[0] for row in advantages] == [0.75] * 4 + [-0.25] * 4 + [0.0] * 4
    rows = {}
    for kind in ("remax", "rloo"):
        files = UpdateFiles([trajectories], [file], adapter.parent, adapter, tmp_path / kind)
        rows[kind] = update(profile_with({"kind": kind}), files, iteration=1)["kept_rows"]
    assert rows == {"remax": 8.0, "rloo": 0.0}


def test_scores_without_baselines_are_refused(profile_with, trajectories, adapter, tmp_path):
    write_scores(
        tmp_path / "scores.parquet",
        [Score(t.id, t.task_id, t.group, "scored", 1.0) for t in read_records(trajectories, Trajectory)],
    )
    files = UpdateFiles([trajectories], [tmp_path / "scores.parquet"], adapter.parent, adapter, tmp_path / "out")
    with pytest.raises(DataError, match="needs a greedy episode of each task.*roll out and score again"):
        update(profile_with({"kind": "remax"}), files, iteration=1)


def test_credit_by_turn_does_not_go_with_a_greedy_baseline():
    with pytest.raises(ValueError, match="credit by turn"):
        PolicyGradientConfig(kind="remax", credit={"kind": "turn"})
