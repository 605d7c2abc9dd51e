"""What the learner's tests share: sampled trajectories, rewards, and an update with some things changed."""

import dataclasses
import itertools
import math

import pytest
import torch
from safetensors.torch import load_file

from tracewheel.config import RetrainConfig
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Score, Trajectory
from tracewheel.learner.scored_trajectories import read_scored_trajectories
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import policy_of
from tracewheel.rollout.rollout import RolloutPlan, rollout
from tracewheel.scoring.score import write_scores

COMMON = ("learning_rate", "gradient_checkpointing", "replay_path", "replay_rows", "minibatches", "micro_batch_tokens")


@pytest.fixture(scope="session")
def trajectories(config, base, adapter, tasks, tmp_path_factory):
    """Four sampled episodes of each of three tasks, by the policy that is updated."""
    out = tmp_path_factory.mktemp("rollout")
    rollout(config, policy_of(adapter, base), RolloutPlan(tasks[::3], samples=4, seed=6), out)
    return out / "trajectories.parquet"


@pytest.fixture(scope="session")
def rewards(trajectories):
    """Rewards that differ within each group."""
    return [float(index % 4 == 1) for index in range(len(read_table(trajectories)))]


@pytest.fixture(scope="session")
def success_file():
    """Write a score for each trajectory, whose reward is its success."""

    def write(path, trajectories, rewards):
        played = zip(read_records(trajectories, Trajectory), rewards, strict=True)
        write_scores(path, [Score(t.id, t.task_id, t.group, "scored", reward, {"success": reward}) for t, reward in played])
        return path

    return write


@pytest.fixture(scope="session")
def same_weights():
    """Compare two adapters, each a safetensors file or the folder of an update."""

    def weights(path):
        return load_file(path / "adapter" / "adapter_model.safetensors" if path.is_dir() else path)

    def compare(one, other):
        one, other = weights(one), weights(other)
        return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

    return compare


@pytest.fixture(scope="session")
def with_nonsense_at_observations(trajectories, tmp_path_factory):
    """The trajectories with other log-probabilities, infinite ones too, wherever the policy sampled nothing."""
    nonsense = itertools.cycle([-7.5, 3.0, math.nan, math.inf, -math.inf])

    def spoil(trajectory):
        pairs = zip(trajectory.logprobs, trajectory.action_mask, strict=True)
        return dataclasses.replace(trajectory, logprobs=[logprob if acted else next(nonsense) for logprob, acted in pairs])

    path = tmp_path_factory.mktemp("spoilt") / "trajectories.parquet"
    write_records(path, [spoil(trajectory) for trajectory in read_records(trajectories, Trajectory)])
    assert read_table(path)["logprobs"][0][:2].tolist() == [-7.5, 3.0]
    return path


@pytest.fixture(scope="session")
def scored_trajectories(trajectories, rewards, score_file, tmp_path_factory):
    """The trajectories joined with their rewards, as an update reads them."""
    scores = score_file(tmp_path_factory.mktemp("scores") / "scores.parquet", trajectories, rewards)
    return read_scored_trajectories([trajectories], [scores])


@pytest.fixture(scope="session")
def score_file():
    """Write a reward for each trajectory, None for unscored ones, and a baseline for each task."""

    def write(path, trajectories, rewards, baseline=0.25):
        items = [
            Score(t.id, t.task_id, t.group, "unscored" if reward is None else "scored", reward, baseline=baseline)
            for t, reward in zip(read_records(trajectories, Trajectory), rewards, strict=True)
        ]
        write_scores(path, items, baselines=True)
        return path

    return write


@pytest.fixture(scope="session")
def profile_with(config):
    """The tests' profile with the learner's settings changed. Only settings common to all are set, so that presets apply."""
    common = {name: getattr(config.learner, name) for name in COMMON}

    def profile(learner=None, **changes):
        values = config.model_dump(mode="json", exclude_unset=True)
        return RetrainConfig.model_validate(values | {"learner": {**common, **(learner or {})}} | changes)

    return profile


@pytest.fixture(scope="session")
def run(profile_with, score_file, trajectories, rewards, adapter, tmp_path_factory):
    """Run the stage into a fresh folder with some things changed; the folder and the metrics."""

    def update_with(learner=None, *, trajectories=trajectories, rewards=rewards, state=adapter.parent, iteration=1, **changes):
        out = tmp_path_factory.mktemp("update")
        scores = score_file(out.with_suffix(".parquet"), trajectories, rewards)
        files = UpdateFiles([trajectories], [scores], state, adapter, out)
        metrics = update(profile_with(learner, **changes), files, iteration=iteration)
        return out, metrics

    return update_with
