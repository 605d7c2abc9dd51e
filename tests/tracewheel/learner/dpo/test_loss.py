"""DPO through TRL: its loss on sampled tokens, and what the policy learns from it."""

import math
import random

import pandas as pd
import pytest
import torch
from peft import PeftModel
from torch.nn.functional import logsigmoid
from trl import DPOTrainer

from tracewheel.config import DpoConfig
from tracewheel.learner.batch import replay_text
from tracewheel.learner.dpo.learner import optimiser_steps
from tracewheel.learner.dpo.loss import PreferenceLoss, pair_tensors
from tracewheel.learner.dpo.preferences import preference_pairs
from tracewheel.policy.adapters import PolicyRef, policy_of
from tracewheel.policy.loading import load_base, load_for_generation, load_renderer

WEIGHTS = "adapter/adapter_model.safetensors"


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


@pytest.fixture(scope="module")
def first(learn):
    """A first update that moves the policy far from the reference."""
    return learn({"learning_rate": 1e-2})[0]


@pytest.mark.parametrize("loss", ["sigmoid", "hinge", "ipo"])
def test_the_loss_is_the_papers_on_sampled_tokens(learn, first, dpo_config, rollouts, adapter, loss):
    """A second update's first step, policy and reference being apart, against plain forward passes."""
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


def test_trl_computes_the_loss(learn, adapter, monkeypatch, same_weights):
    """With TRL's loss multiplied by 0, the pairs teach nothing."""
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


def test_full_weights_can_be_trained(learn, dpo_config, base, adapter):
    """The policy's adapter is folded in, the reference is a second model: before the first step they are equal."""
    settings = {"weights": "full", "learning_rate": 1e-4, "minibatches": 1}
    first, figures = learn(settings)
    assert figures["policy_loss"] == pytest.approx(math.log(2), abs=1e-5)
    second, figures = learn(settings, state=first, iteration=2)
    assert figures["policy_loss"] < math.log(2) - 1e-3
    policy = policy_of(second, base)
    assert (policy.adapter, policy.version) == (None, 2) and not (second / "adapter").exists()
    before, after = (load_for_generation(dpo_config.policy, p).state_dict() for p in (PolicyRef(base, str(adapter)), policy))
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)


def test_layouts_and_checkpointing_do_not_change_the_step(learn):
    """A prompt that passes once, or with each continuation, or padded: the same gradient up to rounding."""
    _, shared = learn({"minibatches": 1})
    for settings in ({"layout": "packed"}, {"layout": "padded"}, {"gradient_checkpointing": True}):
        _, other = learn({"minibatches": 1} | settings)
        assert other.keys() == shared.keys()
        for key in shared.keys() - {"entropy"}:  # a mean over tokens, so its weights depend on the pieces
            assert other[key] == pytest.approx(shared[key], rel=1e-3, abs=1e-5), (settings, key)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("unit", ["trajectories", "groups"])
def test_micro_batches_hold_every_pair_once_and_count_a_common_beginning_once(rollouts, unit, processes):
    pairs = preference_pairs(rollouts, per_group=4, margin=0.5, rng=random.Random(0))
    cap = 2 * max(len(p.prompt_ids) + len(p.chosen.token_ids) + len(p.rejected.token_ids) for p in pairs)
    sizes = {}
    for layout in ("shared_prefix", "packed", "padded"):
        config = DpoConfig(kind="dpo", micro_batch_tokens=cap, minibatches=2, minibatch_of=unit, layout=layout)
        steps = optimiser_steps(config, pairs, replay_text(config, ""), random.Random(0), processes)
        batches = [batch for step in steps for batch in step.batches]
        assert all(len(step.batches) % processes == 0 for step in steps)
        assert [sum(batch.share for batch in step.batches) for step in steps] == pytest.approx([1.0] * 2)
        found = [(pair.chosen.row, pair.rejected.row) for batch in batches if batch.share for pair in batch.pairs]
        assert sorted(found) == sorted((pair.chosen.row, pair.rejected.row) for pair in pairs)
        assert all(tokens_of(batch.pairs, layout) <= cap for batch in batches)
        groups = [{pair.group for pair in step.pairs} for step in steps]
        assert unit == "trajectories" or not groups[0] & groups[1]
        sizes[layout] = len(batches)
    if processes == 1:  # with more, some are cut further, or empty
        assert sizes["shared_prefix"] <= sum(-(-len(step.pairs) // 2) for step in steps)
        assert sizes["shared_prefix"] < sizes["packed"] <= sizes["padded"]


def tokens_of(pairs, layout):
    """The tokens of a pass, counted as the distinct beginnings where these are shared."""
    sides = [(*pair.prompt_ids, *side.token_ids) for pair in pairs for side in (pair.chosen, pair.rejected)]
    if layout == "shared_prefix":
        return len({side[:end] for side in sides for end in range(1, len(side) + 1)})
    return len(sides) * max(map(len, sides)) if layout == "padded" else sum(map(len, sides))


def test_steps_on_whole_groups_learn_the_same_in_every_layout(learn):
    settings = {"minibatches": 2, "minibatch_of": "groups", "replay_rows": 0}
    _, shared = learn(settings)
    _, padded = learn(settings | {"layout": "padded"})
    for key in shared.keys() - {"entropy"}:
        assert padded[key] == pytest.approx(shared[key], rel=1e-3, abs=1e-5), key


@pytest.mark.parametrize("layout", ["padded", "shared_prefix"])
def test_pairs_with_forks_are_scored_row_by_row(dpo_config, base, layout):
    """The tokens after a fork follow their own row: the sums are those of plain passes over the rows."""
    ids = [[11, 12, 13, 14, 15, 16, 17, 18, 19, 20], [11, 12, 13, 14, 21, 22, 23, 24]]
    masks, forks = [[0, 0, 0, 0, 1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 1]], [[[6, 2]], [[6, 4]]]
    table = pd.DataFrame({"group": "g", "token_ids": ids, "action_mask": masks, "forks": forks, "total": [0.0, 1.0]})
    pairs = preference_pairs(table, per_group=1, margin=0.5, rng=random.Random(1))
    model = load_base(dpo_config.policy, base)
    tokenizer = load_renderer(base, "hermes").tokenizer
    found = PreferenceLoss(dpo_config.learner.model_copy(update={"layout": layout}), tokenizer, "cpu").references(model, pairs)
    sums = []
    for row_pair in (([11, 12, 13, 14, 21, 22], [11, 12, 13, 14, 21, 23, 24]), (ids[0][:6], [11, 12, 13, 17, 18, 19, 20])):
        total = 0.0
        for row, actions in zip(row_pair, ((4, 5), (6,) if 24 in row_pair[1] else (4, 5, 6)), strict=True):
            logprobs = model(torch.tensor([row])).logits[0].log_softmax(-1)
            total += sum(logprobs[at - 1, row[at]].item() for at in actions)
        sums.append(total)
    assert found.tolist() == pytest.approx(sums, abs=1e-4)
