"""The policy update on stored trajectories of the tiny base: what changes the adapter, and what does not."""

import dataclasses
import json
import math
import random
import shutil

import pandas as pd
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import AdapterMismatchError, DataError
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Trajectory
from tracewheel.learner.forward_passes import ForwardPasses
from tracewheel.learner.learner import Learner
from tracewheel.learner.losses.ratios import KL_RATIO_BOUND
from tracewheel.learner.models import POLICY
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import PolicyRef, base_hash
from tracewheel.policy.loading import load_base
from tracewheel.rollout.rollout import RolloutPlan, rollout

WEIGHTS = "adapter/adapter_model.safetensors"


@pytest.fixture(scope="session")
def usual(run):
    """The update with nothing changed."""
    return run()


def rewritten(path, trajectories, change):
    """The trajectories with each changed."""
    write_records(path, [change(trajectory) for trajectory in read_records(trajectories, Trajectory)])
    return path


def test_running_it_twice_gives_the_same_bytes(run, usual, files_of):
    (one, metrics), (two, _) = usual, run()
    assert set(files_of(one)) >= {
        WEIGHTS,
        "adapter/adapter.json",
        "adapter/adapter_config.json",
        "optimizer.pt",
        "metrics.json",
    }
    assert files_of(one) == files_of(two)
    assert json.loads((one / "metrics.json").read_text()) == metrics
    assert metrics["steps"] == 2
    assert all(math.isfinite(value) for value in metrics.values())


def test_the_update_changes_the_policy_and_sets_its_version(run, adapter, same_weights):
    out, metrics = run(iteration=5)
    assert not same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")
    assert load_file(out / WEIGHTS).keys() == load_file(adapter / "adapter_model.safetensors").keys()
    assert json.loads((out / "adapter" / "adapter.json").read_text())["version"] == 5
    assert metrics["grad_norm"] > 0


def test_resuming_from_files_equals_an_uninterrupted_run(run, usual, config, trajectories, rewards, adapter, files_of):
    first, _ = usual
    second, _ = run(state=first, iteration=2)
    again, _ = run(state=first, iteration=2)
    assert files_of(second) == files_of(again)

    learner = Learner(config, adapter.parent, adapter)
    table = read_table(trajectories).assign(total=rewards)
    for iteration in (1, 2):
        learner.learn(table, iteration)
    stored = load_file(second / WEIGHTS)
    for name, tensor in learner.models.model.named_parameters():
        if f".{POLICY}." in name:
            assert torch.equal(tensor, stored[name.replace(f".{POLICY}.", ".")])


def test_the_optimiser_state_is_resumed(run, usual, tmp_path, same_weights):
    first, _ = usual
    forgetful = tmp_path / "forgetful"
    shutil.copytree(first, forgetful)
    (forgetful / "optimizer.pt").unlink()
    with_state, _ = run(state=first, iteration=2)
    without, _ = run(state=forgetful, iteration=2)
    assert not same_weights(with_state / WEIGHTS, without / WEIGHTS)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_groups_without_variance_do_not_change_the_policy(run, adapter, rewards, reward, same_weights):
    out, metrics = run(rewards=[reward] * len(rewards))
    assert same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")
    assert metrics["zero_variance_share"] == 1.0
    assert metrics["steps"] == 0.0
    assert metrics["reward"] == reward
    assert (out / "optimizer.pt").exists()


def test_one_group_without_variance_is_left_out(run, trajectories, rewards, tmp_path, same_weights):
    """It has no weight: without its trajectories the update is the same."""
    solved = [1.0] * 4 + rewards[4:]
    full, metrics = run(rewards=solved)
    assert metrics["zero_variance_share"] == pytest.approx(1 / 3)
    fewer = tmp_path / "fewer.parquet"
    write_records(fewer, read_records(trajectories, Trajectory)[4:])
    assert same_weights(full / WEIGHTS, run(trajectories=fewer, rewards=rewards[4:])[0] / WEIGHTS)


def test_unscored_trajectories_are_left_out(run, usual, trajectories, rewards, tmp_path, same_weights):
    """An unscored episode is left out: the update is that of the others, not of a reward of 0."""
    unscored = [*rewards[:6], None, *rewards[7:]]
    full, metrics = run(rewards=unscored)
    assert metrics["unscored_share"] == pytest.approx(1 / 12)
    others = read_records(trajectories, Trajectory)
    fewer = tmp_path / "fewer.parquet"
    write_records(fewer, others[:6] + others[7:])
    assert same_weights(full / WEIGHTS, run(trajectories=fewer, rewards=rewards[:6] + rewards[7:])[0] / WEIGHTS)
    assert not same_weights(full / WEIGHTS, usual[0] / WEIGHTS)
    _, metrics = run(rewards=[None] * len(rewards))
    assert metrics["steps"] == 0.0 and metrics["unscored_share"] == 1.0


def test_logprobs_of_observations_do_not_change_the_update(run, usual, with_nonsense_at_observations, files_of):
    """The same loss, gradient and adapter, to the bit."""
    assert files_of(usual[0]) == files_of(run(trajectories=with_nonsense_at_observations)[0])


def test_logprobs_of_actions_change_the_update(run, usual, trajectories, tmp_path, same_weights):
    def spoil(trajectory):
        pairs = zip(trajectory.logprobs, trajectory.action_mask, strict=True)
        return dataclasses.replace(trajectory, logprobs=[logprob - 0.05 * acted for logprob, acted in pairs])

    spoilt = rewritten(tmp_path / "spoilt.parquet", trajectories, spoil)
    assert not same_weights(usual[0] / WEIGHTS, run(trajectories=spoilt)[0] / WEIGHTS)


def test_ratios_are_1_in_the_first_step(run):
    """The first step is on-policy: engine and learner agree on every token, so all ratios are 1."""
    _, metrics = run({"minibatches": 1, "kl": 0.01})
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-3)
    assert metrics["behaviour_kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["clip_share"] == 0.0
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6), "the reference is the policy itself before its first step"


def test_the_rollouts_temperature_is_used(config, base, adapter, tasks, score_file, tmp_path):
    """Ratios are 1 at a temperature other than 1, too: a high one, so that tokens are far from certain."""
    hotter = config.model_copy(
        update={
            "rollout": config.rollout.model_copy(update={"temperature": 1.6}),
            "learner": config.learner.model_copy(update={"minibatches": 1}),
        }
    )
    rollout(hotter, PolicyRef(base, str(adapter)), RolloutPlan(tasks[:2], samples=4, seed=6), tmp_path)
    path = tmp_path / "trajectories.parquet"
    scores = score_file(tmp_path / "scores.parquet", path, [0.0, 1.0] * 4)
    metrics = update(hotter, UpdateFiles([path], [scores], adapter.parent, adapter, tmp_path / "out"), iteration=1)
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-3)
    assert metrics["behaviour_kl"] == pytest.approx(0.0, abs=1e-6)


def action_logprobs(config, adapter, trajectories):
    """The log-probabilities of each trajectory's actions, by plain forward passes."""
    model = PeftModel.from_pretrained(load_base(config.policy, config.policy.base), adapter).eval()
    of_actions = []
    for trajectory in trajectories:
        ids = torch.tensor([trajectory.token_ids])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(input_ids=ids).logits[0], dim=-1)
        taken = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0]
        of_actions.append(taken[torch.tensor(trajectory.action_mask[1:]).bool()])
    return of_actions


def test_rewarded_trajectories_become_likelier(run, config, trajectories, adapter):
    """In one group equal episodes are rewarded: they become likelier, the others less likely on average."""
    all_episodes = read_records(trajectories, Trajectory)
    groups = [all_episodes[start : start + 4] for start in range(0, len(all_episodes), 4)]
    group = max(groups, key=lambda episodes: len({tuple(episode.token_ids) for episode in episodes}))
    good = [episode.token_ids == group[0].token_ids for episode in group]
    assert not all(good)
    rewards = [float(any(episode is one and well for one, well in zip(group, good, strict=True))) for episode in all_episodes]
    out, _ = run({"minibatches": 1, "kl": 0.0, "replay_rows": 0, "learning_rate": 1e-4}, rewards=rewards)
    before, after = action_logprobs(config, adapter, group), action_logprobs(config, out / "adapter", group)
    gains = [(new - old).sum().item() for new, old in zip(after, before, strict=True)]
    assert gains[0] > 0
    assert sum(gain for gain, well in zip(gains, good, strict=True) if not well) < 0


def test_replay_text_is_optional(run, usual, same_weights):
    with_replay, figures = usual
    assert figures["replay_loss"] > 0
    for learner in ({"replay_rows": 0}, {"replay_path": None}):
        without, figures = run(learner)
        assert figures["replay_loss"] == 0.0
        assert not same_weights(with_replay / WEIGHTS, without / WEIGHTS)


def test_kl_is_measured_to_the_reference(run, config, trajectories, adapter):
    """In the first step of a second update: the K3 estimate between the two adapters, by plain forward passes."""
    first, _ = run({"learning_rate": 2e-3})
    _, figures = run({"kl": 0.01, "minibatches": 1}, state=first, iteration=2)
    episodes = read_records(trajectories, Trajectory)
    policy, reference = (torch.cat(action_logprobs(config, path, episodes)) for path in (first / "adapter", adapter))
    assert (reference - policy).max() < KL_RATIO_BOUND
    expected = ((reference - policy).exp() - (reference - policy) - 1).mean().item()
    assert expected > 1e-3
    assert figures["kl"] == pytest.approx(expected, rel=1e-3)


def test_a_kl_weight_reduces_the_distance_to_the_reference(run, adapter):
    """After a first update policy and reference differ: a heavy weight brings a smaller distance."""
    first, _ = run({"learning_rate": 1e-2})
    free, figures = run({"kl": 0.0}, state=first, iteration=2)
    assert "kl" not in figures, "nothing was measured"
    heavy, figures = run({"kl": 100.0}, state=first, iteration=2)
    assert figures["kl"] > 0.0
    start = load_file(adapter / "adapter_model.safetensors")

    def distance(folder):
        return sum((tensor - start[name]).square().sum() for name, tensor in load_file(folder / WEIGHTS).items())

    assert distance(heavy) < distance(free)


def test_micro_batches_do_not_change_the_step(run):
    """Cut into single trajectories or all at once: the same gradient up to rounding."""
    _, small = run({"micro_batch_tokens": 1, "minibatches": 1})
    _, large = run({"micro_batch_tokens": 100_000, "minibatches": 1})
    for key in ("loss", "grad_norm", "entropy", "replay_loss"):
        assert small[key] == pytest.approx(large[key], rel=1e-3, abs=1e-5)


def test_minibatches_of_whole_groups(run):
    """There are three groups, so no more than three steps."""
    _, apart = run({"minibatches": 5, "minibatch_of": "trajectories"})
    _, whole = run({"minibatches": 5, "minibatch_of": "groups"})
    assert (apart["steps"], whole["steps"]) == (5, 3)


def test_minibatches_share_out_every_trajectory_once(profile_with, scored_trajectories):
    for unit, sizes in (("groups", {4, 8}), ("trajectories", {6})):
        settings = profile_with({"minibatches": 2, "minibatch_of": unit}).learner
        passes = ForwardPasses(settings, "cpu", models=None, backend=None)
        parts = [part.frame for part in passes.minibatches(TrajectoryTable(scored_trajectories), random.Random(0))]
        assert sorted(name for part in parts for name in part["id"]) == sorted(scored_trajectories["id"])
        assert {len(part) for part in parts} == sizes
        whole = [len(rows) == 4 for part in parts for _, rows in part.groupby("group")]
        assert all(whole) == (unit == "groups")


def test_seed_and_iteration_fix_the_random_choices(run, usual, same_weights):
    assert not same_weights(usual[0] / WEIGHTS, run(seed=1)[0] / WEIGHTS)
    assert not same_weights(usual[0] / WEIGHTS, run(iteration=2)[0] / WEIGHTS)


def test_trajectories_without_scores_are_an_error(config, trajectories, rewards, adapter, score_file, tmp_path):
    scores = score_file(tmp_path / "scores.parquet", trajectories, rewards)
    table = pd.read_parquet(scores)
    table.iloc[1:].to_parquet(scores)
    with pytest.raises(DataError, match=f"1 trajectories have no score, the first is {table['trajectory_id'][0]}"):
        update(config, UpdateFiles([trajectories], [scores], adapter.parent, adapter, tmp_path), iteration=1)
    with pytest.raises(DataError, match=r"absent\.parquet: no such file"):
        update(
            config, UpdateFiles([trajectories], [tmp_path / "absent.parquet"], adapter.parent, adapter, tmp_path), iteration=1
        )


def test_an_adapter_of_another_base_is_refused(config, base, other_base, trajectories, rewards, adapter, score_file, tmp_path):
    scores = score_file(tmp_path / "scores.parquet", trajectories, rewards)
    elsewhere = RetrainConfig.model_validate(config.model_dump() | {"policy": {"base": other_base}})
    with pytest.raises(AdapterMismatchError) as caught:
        update(elsewhere, UpdateFiles([trajectories], [scores], adapter.parent, adapter, tmp_path), iteration=1)
    assert base_hash(base) in str(caught.value) and base_hash(other_base) in str(caught.value)
    assert not (tmp_path / "adapter").exists()
