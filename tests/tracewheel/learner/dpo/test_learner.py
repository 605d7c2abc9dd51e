"""DPO through TRL on trajectories of the tiny base: its loss, its effect on the policy, and resuming."""

import json
import math
import random
import shutil

import pytest
import torch
from peft import PeftModel
from pydantic import ValidationError
from safetensors.torch import load_file
from torch.nn.functional import logsigmoid
from trl import DPOTrainer

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import AdapterMismatchError
from tracewheel.core.files import read_table
from tracewheel.learner.dpo.learner import learn_dpo
from tracewheel.learner.dpo.preferences import preference_pairs
from tracewheel.learner.dpo.trainer import pair_tensors
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import PolicyRef, policy_of
from tracewheel.policy.loading import load_base, load_for_generation
from tracewheel.rollout.rollout import rollout

WEIGHTS = "adapter/adapter_model.safetensors"


@pytest.fixture(scope="module")
def dpo_config(config):
    learner = {"kind": "dpo", "minibatches": 2, "micro_batch_tokens": 2048, "replay_path": config.learner.replay_path}
    return RetrainConfig.model_validate(config.model_dump() | {"learner": learner | {"replay_rows": 2}})


@pytest.fixture(scope="module")
def rollouts(config, base, adapter, tasks, tmp_path_factory):
    """Four episodes of each of three tasks, sampled hot so that they differ; each group has success and failure."""
    hotter = config.model_copy(update={"rollout": config.rollout.model_copy(update={"temperature": 2.0, "max_tokens": 200})})
    out = tmp_path_factory.mktemp("rollout")
    rollout(hotter, PolicyRef(base, str(adapter)), tasks[::3], out, samples=4, seed=6)
    table = read_table(out / "trajectories.parquet")
    return table.assign(total=[float(index % 4 < 2) for index in range(len(table))])


@pytest.fixture(scope="module")
def learn(dpo_config, rollouts, adapter, tmp_path_factory):
    """Run the update into a fresh folder with some things changed; the folder and the figures."""

    def learn_with(learner=None, *, rollouts=rollouts, state=adapter.parent, iteration=1, **changes):
        changed = dpo_config.model_copy(
            update={"learner": dpo_config.learner.model_copy(update=learner or {}), **changes},
        )
        out = tmp_path_factory.mktemp("dpo")
        return out, learn_dpo(changed, rollouts, UpdateFiles([], [], state, adapter, out), iteration)

    return learn_with


@pytest.fixture(scope="module")
def usual(learn):
    return learn()


def same_weights(one, other):
    one, other = load_file(one), load_file(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def plain_logprobs(config, adapter, continuations, prompts):
    """The sum over the sampled tokens of each continuation, by a plain forward pass."""
    model = PeftModel.from_pretrained(load_base(config.policy, config.policy.base), adapter).eval()
    sums = []
    for continuation, prompt in zip(continuations, prompts, strict=True):
        ids = torch.tensor([prompt + continuation.token_ids])
        mask = torch.tensor([0] * len(prompt) + continuation.action_mask)
        with torch.no_grad():
            logprobs = model(ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None]).squeeze(-1)
        sums.append((logprobs * mask[1:]).sum().item())
    return torch.tensor(sums)


def test_running_it_twice_gives_the_same_bytes(learn, usual, files_of):
    (one, figures), (two, again) = usual, learn()
    described = {f"adapter/{name}.json" for name in ("adapter", "adapter_config", "probe")}
    assert set(files_of(one)) == {WEIGHTS, "optimizer.pt"} | described
    assert files_of(one) == files_of(two) and figures == again
    assert figures["steps"] == 2 and figures["pairs"] >= 4
    assert all(math.isfinite(value) for value in figures.values())


def test_the_update_changes_the_policy_and_sets_its_version(learn, adapter):
    out, figures = learn(iteration=5)
    assert not same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")
    assert load_file(out / WEIGHTS).keys() == load_file(adapter / "adapter_model.safetensors").keys()
    assert json.loads((out / "adapter" / "adapter.json").read_text())["version"] == 5
    assert figures["grad_norm"] > 0


@pytest.mark.parametrize("loss", ["sigmoid", "hinge", "ipo"])
def test_the_loss_is_the_papers_on_sampled_tokens(learn, dpo_config, rollouts, adapter, loss):
    """A second update's first step, policy and reference being apart, against plain forward passes."""
    first, _ = learn({"learning_rate": 1e-2})
    settings = {"minibatches": 1, "loss": loss, "beta": 0.3}
    _, figures = learn(settings, state=first, iteration=2)
    pairs = preference_pairs(rollouts, per_group=4, margin=0.5, rng=random.Random("dpo-0-2"))
    assert any(0 in way.action_mask for pair in pairs for way in (pair.chosen, pair.rejected)), "observations to leave out"
    prompts = [pair.prompt_ids for pair in pairs]
    ratios = {}
    for side in ("chosen", "rejected"):
        chosen = [getattr(pair, side) for pair in pairs]
        policy, reference = (plain_logprobs(dpo_config, path, chosen, prompts) for path in (first / "adapter", adapter))
        ratios[side] = policy - reference
    delta = ratios["chosen"] - ratios["rejected"]
    assert delta.abs().max() > 0.05
    lengths = {side: torch.tensor([float(sum(getattr(p, side).action_mask)) for p in pairs]) for side in ratios}
    mean_delta = ratios["chosen"] / lengths["chosen"] - ratios["rejected"] / lengths["rejected"]
    expected = {
        "sigmoid": -logsigmoid(0.3 * delta),
        "hinge": (1 - 0.3 * delta).clamp(min=0),
        "ipo": (mean_delta - 1 / (2 * 0.3)) ** 2,
    }[loss].mean()
    assert figures["policy_loss"] == pytest.approx(expected.item(), rel=1e-4)
    assert figures["preference_accuracy"] == pytest.approx((delta > 0).float().mean().item())
    assert figures["preference_margin"] == pytest.approx(0.3 * delta.mean().item(), abs=1e-4)
    assert figures["loss"] == pytest.approx(figures["policy_loss"] + 0.3 * figures["replay_loss"])


def test_trl_computes_the_loss(learn, adapter, monkeypatch):
    """With TRL's loss put to nothing, nothing is learned from the pairs."""
    calls = []
    real = DPOTrainer._compute_loss

    def nothing(self, model, inputs, return_outputs):
        calls.append(inputs["completion_mask"].shape)
        return real(self, model, inputs, return_outputs) * 0.0

    monkeypatch.setattr(DPOTrainer, "_compute_loss", nothing)
    out, _ = learn({"replay_rows": 0})
    assert len(calls) >= 2
    assert same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")


def test_masks_and_ids_reach_trl_as_sampled(rollouts):
    pairs = preference_pairs(rollouts, per_group=4, margin=0.5, rng=random.Random(0))
    batch = pair_tensors(pairs, padding=0)
    rows = [pair.chosen.row for pair in pairs] + [pair.rejected.row for pair in pairs]
    assert len(batch["input_ids"]) == len(rows)
    for number, (row, pair) in enumerate(zip(rows, pairs * 2, strict=True)):
        ids, mask = rollouts["token_ids"][row].tolist(), rollouts["action_mask"][row].tolist()
        mask[: len(pair.prompt_ids)] = [0] * len(pair.prompt_ids)
        short = batch["input_ids"].shape[1] - len(ids)
        assert batch["input_ids"][number].tolist() == ids + [0] * short
        assert batch["completion_mask"][number].tolist() == mask + [0] * short
        assert batch["attention_mask"][number].tolist() == [1] * len(ids) + [0] * short


def test_resuming_is_repeatable_and_uses_the_optimiser_state(learn, usual, tmp_path, files_of):
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
def test_without_pairs_the_policy_does_not_change(learn, rollouts, adapter, reward):
    out, figures = learn(rollouts=rollouts.assign(total=reward))
    assert same_weights(out / WEIGHTS, adapter / "adapter_model.safetensors")
    assert figures == {"pairs": 0.0, "zero_variance_share": 1.0, "steps": 0.0}
    assert (out / "optimizer.pt").exists()


def test_micro_batches_do_not_change_the_step(learn, rollouts):
    """Pairs one at a time, in steps of unequal size, or all at once: the same gradient up to rounding."""
    one_group = rollouts[rollouts["group"] == rollouts["group"].iloc[0]]
    settings = {"pairs_per_group": 3, "minibatches": 2}
    _, small = learn(settings | {"micro_batch_tokens": 1}, rollouts=one_group)
    _, large = learn(settings | {"micro_batch_tokens": 100_000}, rollouts=one_group)
    assert small["pairs"] == 3
    assert small.keys() == large.keys()
    for key in small.keys() - {"entropy"}:  # a mean over tokens, so its weights depend on the pieces
        assert small[key] == pytest.approx(large[key], rel=1e-3, abs=1e-5), key


def test_the_policy_learns_to_prefer_successes(learn, adapter):
    state, losses = adapter.parent, []
    for iteration in (1, 2, 3):
        state, figures = learn({"epochs": 2, "learning_rate": 3e-3, "replay_rows": 0}, state=state, iteration=iteration)
        losses.append(figures["policy_loss"])
    assert figures["steps"] == 4
    assert losses[-1] < 0.5 * losses[0]
    assert figures["preference_accuracy"] == 1.0


def test_replay_text_is_optional(learn, usual):
    assert usual[1]["replay_loss"] > 0
    without, figures = learn({"replay_rows": 0})
    assert figures["replay_loss"] == 0.0
    assert not same_weights(usual[0] / WEIGHTS, without / WEIGHTS)


def test_seed_and_iteration_fix_the_random_choices(learn, usual):
    assert not same_weights(usual[0] / WEIGHTS, learn(seed=1)[0] / WEIGHTS)
    assert not same_weights(usual[0] / WEIGHTS, learn(iteration=2)[0] / WEIGHTS)


def test_an_adapter_of_another_base_is_refused(learn, dpo_config, other_base):
    policy = dpo_config.policy.model_copy(update={"base": other_base})
    with pytest.raises(AdapterMismatchError):
        learn(policy=policy)


def test_full_weights_can_be_trained(learn, dpo_config, base, adapter):
    """The policy's adapter is folded in, the reference is a second model: before the first step they are alike."""
    settings = {"weights": "full", "learning_rate": 1e-4, "minibatches": 1}
    first, figures = learn(settings)
    assert figures["policy_loss"] == pytest.approx(math.log(2), abs=1e-5)
    second, figures = learn(settings, state=first, iteration=2)
    assert figures["policy_loss"] < math.log(2) - 1e-3
    policy = policy_of(second, base)
    assert (policy.adapter, policy.version) == (None, 2) and not (second / "adapter").exists()
    before, after = (load_for_generation(dpo_config.policy, p).state_dict() for p in (PolicyRef(base, str(adapter)), policy))
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("setting", [{"layout": "packed"}, {"backend": {"kind": "deepspeed"}}])
def test_layouts_and_backends_that_trl_lacks_are_refused(setting):
    with pytest.raises(ValidationError, match="is for the other algorithms"):
        RetrainConfig.model_validate({"name": "test", "learner": {"kind": "dpo"} | setting})
