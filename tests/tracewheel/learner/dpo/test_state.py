"""DPO updates are reproducible, resume from files, and change nothing without pairs."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file

from tracewheel.core.errors import AdapterMismatchError
from tracewheel.learner.learning_rate import learning_rate

WEIGHTS = "adapter/adapter_model.safetensors"


def test_running_it_twice_gives_the_same_bytes(learn, usual, files_of):
    (one, figures), (two, again) = usual, learn()
    described = {f"adapter/{name}.json" for name in ("adapter", "adapter_config", "probe")}
    assert set(files_of(one)) == {WEIGHTS, "optimizer.pt"} | described
    assert files_of(one) == files_of(two) and figures == again
    assert figures["steps"] == 2 and figures["pairs"] >= 4
    assert all(math.isfinite(value) for value in figures.values())


def test_the_update_changes_the_policy_and_sets_its_version(learn, adapter, same_weights):
    out, figures = learn(iteration=5)
    assert not same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")
    assert load_file(out / WEIGHTS).keys() == load_file(adapter / "adapter_model.safetensors").keys()
    assert json.loads((out / "adapter" / "adapter.json").read_text())["version"] == 5
    assert figures["grad_norm"] > 0


def test_resuming_is_repeatable_and_uses_the_optimiser_state(learn, usual, tmp_path, files_of, same_weights):
    first, _ = usual
    second, _ = learn(state=first, iteration=2)
    again, _ = learn(state=first, iteration=2)
    assert files_of(second) == files_of(again)
    forgetful = tmp_path / "forgetful"
    shutil.copytree(first, forgetful)
    (forgetful / "optimizer.pt").unlink()
    without, _ = learn(state=forgetful, iteration=2)
    assert not same_weights(second / WEIGHTS, without / WEIGHTS)


def test_each_iteration_has_its_own_learning_rate(learn, usual, dpo_config):
    """Not the one that an earlier iteration's scheduler has left in the optimiser's state."""
    first, _ = usual
    still, _ = learn({"learning_rate": 1e-12}, state=first, iteration=2)
    before, after = load_file(first / WEIGHTS), load_file(still / WEIGHTS)
    assert max((after[name] - before[name]).abs().max() for name in before) < 1e-9
    falling = dpo_config.model_copy(update={"learner": dpo_config.learner.model_copy(update={"schedule": "linear"})})
    assert learning_rate(falling, 1) == 1e-3 > learning_rate(falling, 2) == pytest.approx(0.9e-3)
    out, _ = learn({"schedule": "linear"}, state=first, iteration=2)
    (group,) = torch.load(out / "optimizer.pt", weights_only=True)["param_groups"]
    assert group["lr"] == pytest.approx(0.9e-3) and "initial_lr" not in group


@pytest.mark.parametrize("reward", [0.0, 1.0, float("nan")])
def test_without_pairs_the_policy_does_not_change(learn, rollouts, adapter, reward, same_weights):
    out, figures = learn(rollouts=rollouts.assign(total=reward))
    assert same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")
    assert figures == {"pairs": 0.0, "zero_variance_share": 1.0, "steps": 0.0}
    assert (out / "optimizer.pt").exists()


def test_replay_text_is_optional(learn, usual, same_weights):
    assert usual[1]["replay_loss"] > 0
    without, figures = learn({"replay_rows": 0})
    assert figures["replay_loss"] == 0.0
    assert not same_weights(usual[0] / WEIGHTS, without / WEIGHTS)


def test_seed_and_iteration_fix_the_random_choices(learn, usual, same_weights):
    assert not same_weights(usual[0] / WEIGHTS, learn(seed=1)[0] / WEIGHTS)
    assert not same_weights(usual[0] / WEIGHTS, learn(iteration=2)[0] / WEIGHTS)


def test_an_adapter_of_another_base_is_refused(learn, dpo_config, other_base):
    policy = dpo_config.policy.model_copy(update={"base": other_base})
    with pytest.raises(AdapterMismatchError):
        learn(policy=policy)
