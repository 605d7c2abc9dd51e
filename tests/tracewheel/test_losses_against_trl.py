"""Our GRPO against TRL's: its trainer generates, scores and trains; each of its losses is compared with ours.

`Comparison` overrides nothing of TRL's arithmetic: it lets `GRPOTrainer._compute_loss` run on the
trainer's own micro-batches and computes our loss of the same tokens beside it.
"""

import pandas as pd
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from tracewheel.advantages import group_advantages, zero_variance_share
from tracewheel.batch import micro_batches
from tracewheel.losses import Diagnostics, StepTotals, grpo_loss
from tracewheel.token_logprobs import action_logprobs

TEMPERATURE = 0.9
PROMPTS = ["w3 w4 w5", "w6 w7", "w8 w9 w10 w11"]
GROUP = 4
REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, 0.2, 0.9, 0.4]
AGGREGATION = {"dapo": "token", "grpo": "sequence"}


class Comparison(GRPOTrainer):
    """TRL's trainer, with our loss computed beside each of its own."""

    def __init__(self, *args, masked, **kwargs):
        super().__init__(*args, **kwargs)
        self.masked = masked
        self.losses, self.gradients, self.diagnostics = [], [], []

    def _compute_loss(self, model, inputs):
        if self.masked:
            for each in self._buffered_inputs:
                each["tool_mask"] = (each["completion_ids"] % 3 != 0).long()
            tokens = sum((each["completion_mask"] * each["tool_mask"]).sum() for each in self._buffered_inputs)
            for each in self._buffered_inputs:
                each["num_items_in_batch"] = tokens
        theirs = super()._compute_loss(model, inputs)
        ours, diagnostics = self._our_loss(model, inputs)
        self.losses.append((ours.item(), theirs.item()))
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        our_gradients = torch.autograd.grad(ours, parameters, retain_graph=True)
        their_gradients = torch.autograd.grad(theirs, parameters, retain_graph=True)
        self.gradients.append((our_gradients, their_gradients))
        self.diagnostics.append(diagnostics)
        return theirs

    def _our_loss(self, model, inputs) -> tuple[torch.Tensor, Diagnostics]:
        totals = StepTotals(
            tokens=int(self._buffered_inputs[0]["num_items_in_batch"]),
            sequences=sum(len(each["advantages"]) for each in self._buffered_inputs),
        )
        (batch,) = micro_batches(_rows(inputs, inputs["old_per_token_logps"]), inputs["advantages"], 10**6)
        reference = None
        if self.beta:
            (as_reference,) = micro_batches(_rows(inputs, inputs["ref_per_token_logps"]), inputs["advantages"], 10**6)
            reference = as_reference.behaviour_logprobs
        logprobs, _ = action_logprobs(model, batch, TEMPERATURE, chunk=16)
        loss = grpo_loss(
            logprobs,
            batch.behaviour_logprobs,
            reference,
            batch.advantages,
            batch.action_mask,
            totals,
            clip=self.epsilon_low,
            clip_high=self.epsilon_high,
            kl=self.beta,
            aggregation=AGGREGATION[self.loss_type],
            correct_kl=self.args.use_bias_correction_kl,
        )
        return loss.loss, loss.diagnostics


def _rows(inputs, logprobs) -> pd.DataFrame:
    """TRL's left-padded prompts and right-padded completions, as the rows of stored trajectories."""
    mask = inputs["completion_mask"] * inputs.get("tool_mask", torch.ones_like(inputs["completion_mask"]))
    rows = []
    for row in range(len(mask)):
        prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()].tolist()
        kept = inputs["completion_mask"][row].bool()
        rows.append(
            {
                "token_ids": prompt + inputs["completion_ids"][row][kept].tolist(),
                "action_mask": [0] * len(prompt) + mask[row][kept].tolist(),
                "logprobs": [0.0] * len(prompt) + logprobs[row][kept].tolist(),
            }
        )
    return pd.DataFrame(rows)


def _tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<end>", "<unknown>"] + [f"w{number}" for number in range(3, 40)]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>")


def _policy():
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5.0)
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return adapted


def _train(tmp_path, *, loss_type="dapo", beta=0.0, scale_rewards="group", masked=False, correct_kl=True) -> Comparison:
    """One generation, two optimiser steps on it, two micro-batches each."""
    trainer = Comparison(
        model=_policy(),
        reward_funcs=lambda completions, **_: REWARDS[: len(completions)],
        processing_class=_tokenizer(),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        masked=masked,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=6,
            gradient_accumulation_steps=2,
            num_generations=GROUP,
            num_iterations=2,
            max_steps=2,
            max_completion_length=12,
            temperature=TEMPERATURE,
            learning_rate=0.03,
            lr_scheduler_type="constant",
            loss_type=loss_type,
            beta=beta,
            use_bias_correction_kl=correct_kl,
            scale_rewards=scale_rewards,
            epsilon=0.2,
            epsilon_high=0.28,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=100,
            disable_tqdm=True,
            seed=1,
        ),
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("masked", [False, True], ids=["all completion tokens", "observations masked"])
@pytest.mark.parametrize(("beta", "correct_kl"), [(0.0, True), (0.1, True), (0.1, False)])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_loss_and_gradient_equal_trl(tmp_path, loss_type, beta, correct_kl, masked):
    trainer = _train(tmp_path, loss_type=loss_type, beta=beta, correct_kl=correct_kl, masked=masked)
    assert GRPOTrainer._compute_loss.__module__ == "trl.trainer.grpo_trainer"
    assert len(trainer.losses) == 4
    for ours, theirs in trainer.losses:
        assert ours == pytest.approx(theirs, rel=0, abs=1e-6)
    assert max(abs(theirs) for _, theirs in trainer.losses) > 0.01
    for ours, theirs in trainer.gradients:
        scale = max(gradient.abs().max() for gradient in theirs)
        assert scale > 1e-3
        for our, their in zip(ours, theirs, strict=True):
            assert (our - their).abs().max() <= 1e-5 * scale
    second_step = trainer.diagnostics[2:]
    assert sum(each.clipped for each in second_step) > 0
    assert sum(second_step, Diagnostics()).ratio_max > 1.28


@pytest.mark.parametrize("scale_rewards", ["group", "none"])
def test_advantages_equal_trl(tmp_path, scale_rewards):
    trainer = _train(tmp_path, scale_rewards=scale_rewards)
    theirs = torch.tensor(list(trainer._logs["advantages"]))
    rewards = torch.tensor([float("nan") if reward is None else reward for reward in REWARDS])
    groups = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    ours, zero_variance = group_advantages(rewards, groups, scale=scale_rewards == "group")
    assert theirs.shape == ours.shape
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert theirs.abs().max() > 0.4
    assert zero_variance.tolist() == [False] * 4 + [True] * 4 + [False] * 4
    assert zero_variance_share(rewards, groups) == pytest.approx(1 / 3)


def test_clip_share_equals_trl(tmp_path):
    trainer = _train(tmp_path, masked=True)
    (logged,) = [entry["clip_ratio/region_mean"] for entry in trainer.state.log_history if "clip_ratio/region_mean" in entry]
    ours = [each.clip_share for each in trainer.diagnostics]
    assert logged > 0.01
    assert sum(ours) / len(ours) == pytest.approx(logged, abs=1e-6)
