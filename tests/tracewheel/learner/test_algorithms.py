"""Every algorithm on stored trajectories: it learns, it resumes to the bit, it sees no observation."""

import dataclasses
import itertools
import math

import pytest

from tracewheel.config.algorithms import PRESETS
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Trajectory
from tracewheel.learner.dpo.learner import learn_dpo
from tracewheel.learner.learner import Learner
from tracewheel.learner.scored_trajectories import read_scored_trajectories
from tracewheel.learner.update_files import UpdateFiles

WEIGHTS = "adapter/adapter_model.safetensors"
VARIANTS = {
    **{kind: {"kind": kind} for kind in PRESETS},
    "dpo": {"kind": "dpo"},
    "ppo by turn, light critic": {"kind": "ppo", "advantage": {"granularity": "turn", "critic": {"kind": "light"}}},
    "ppo with V-trace": {"kind": "ppo", "advantage": {"vtrace": True}, "off_policy": {"proximal": "recompute"}},
    "ppo with the KL in the reward": {"kind": "ppo", "kl": {"place": "reward", "estimator": "k1"}},
    "decoupled, truncated": {"off_policy": {"proximal": "recompute", "correction": "truncate"}},
    "decoupled, masked by sequence": {"off_policy": {"proximal": "recompute", "correction": "mask", "level": "sequence"}},
    "adaptive KL": {"kl": {"target": 0.01}},
    "forward KL": {"kl": {"direction": "forward"}},
    "entropy with a floor": {"entropy": {"bonus": 0.01, "floor": 5.0}},
    "replay buffer": {"buffer": {"kind": "priority", "rows": 4}},
    "PPO with a replay buffer": {"kind": "ppo", "buffer": {"kind": "fifo", "rows": 4}},
    "clamped": {"zero_variance": {"kind": "clamp"}},
    "credit by turn": {"credit": {"kind": "turn", "discount": 0.9}},
    "packed": {"layout": "packed"},
    "shared prefixes": {"layout": "shared_prefix"},
}


@pytest.fixture(params=VARIANTS)
def settings(request, adapter):
    """The learner's settings of one algorithm; no critic warm-up, so that the first step counts."""
    learner = {**VARIANTS[request.param]}
    if learner.get("kind") == "ppo":
        advantage = learner.get("advantage", {})
        learner["advantage"] = {**advantage, "critic": {"warmup_iterations": 0, **advantage.get("critic", {})}}
    if learner.get("kind") == "distillation":
        learner["advantage"] = {"adapter": str(adapter)}
    return learner


@pytest.fixture
def states(settings, run):
    """The states after a first and a second update, each from the files of the one before."""
    first, _ = run(settings)
    second, metrics = run(settings, state=first, iteration=2)
    return first, second, metrics


def test_resumed_from_files_equals_never_having_stopped(
    settings, states, profile_with, score_file, trajectories, rewards, adapter, tmp_path, files_of
):
    first, second, metrics = states
    config = profile_with(settings)
    samples = read_scored_trajectories([trajectories], [score_file(tmp_path / "scores.parquet", trajectories, rewards)])
    whole = tmp_path / "whole"
    if settings.get("kind") == "dpo":
        learn_dpo(config, samples, UpdateFiles([], [], first, adapter, whole), 2)
    else:
        learner = Learner(config, adapter.parent, adapter)
        for iteration in (1, 2):
            learner.learn(samples, iteration)
        learner.save(whole, version=2)
    expected = {name: content for name, content in files_of(second).items() if name != "metrics.json"}
    assert files_of(whole) == expected
    assert metrics["steps"] > 0
    assert all(math.isfinite(value) for value in metrics.values())
    assert expected[WEIGHTS] != files_of(first)[WEIGHTS], "the second update has changed the policy"


def test_observations_count_for_nothing(settings, states, run, trajectories, tmp_path, files_of):
    """Whatever is stored at prompt and observation tokens: the same state, to the bit."""
    nonsense = itertools.cycle([-7.5, 3.0, math.nan, math.inf, -math.inf])

    def spoil(trajectory):
        pairs = zip(trajectory.logprobs, trajectory.action_mask, strict=True)
        return dataclasses.replace(trajectory, logprobs=[logprob if acted else next(nonsense) for logprob, acted in pairs])

    spoilt = tmp_path / "spoilt.parquet"
    write_records(spoilt, [spoil(trajectory) for trajectory in read_records(trajectories, Trajectory)])
    assert read_table(spoilt)["logprobs"][0][:2].tolist() == [-7.5, 3.0]
    out, _ = run(settings, trajectories=spoilt)
    unlike = {name for name, content in files_of(out).items() if content != files_of(states[0]).get(name)}
    assert unlike <= {"buffer.parquet"}, "the buffer keeps what it was given; everything else is the same"
