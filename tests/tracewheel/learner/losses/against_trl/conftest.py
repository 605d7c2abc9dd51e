"""Our losses compared with TRL's, while TRL's trainer generates, scores and trains.

`Comparison` overrides no arithmetic of TRL: `GRPOTrainer._compute_loss` runs on the trainer's own micro-batches, and
our loss of the same tokens is computed next to it. The lines of TRL that ran are recorded, so that an algorithm cannot
pass by the branch of another one, or without TRL.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

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

from tracewheel.config import (
    CispoConfig,
    ClipConfig,
    GspoConfig,
    KlConfig,
    SapoConfig,
    SurrogateConfig,
)
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.losses.aggregation import StepTotals, aggregate
from tracewheel.learner.losses.policy import PolicyLoss, PolicyTokens, policy_loss
from tracewheel.learner.losses.ratios import kl_term

TEMPERATURE = 0.9
PROMPTS = ["w3 w4 w5", "w6 w7", "w8 w9 w10 w11"]
GROUP = 4
LONGEST = 12
REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, 0.2, 0.9, 0.4]


@dataclass(frozen=True)
class Algorithm:
    """One algorithm in TRL's settings and in ours; `lines` are lines of TRL that only it and its variants run."""

    surrogate: SurrogateConfig
    aggregation: str
    theirs: dict[str, Any]
    lines: tuple[str, ...]
    corrected: bool = True
    clips: bool = True


CLIP_LINES = ("coef_2 = torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_high)",)
SEQUENCE_LINES = ("loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",)
TOKEN_LINES = ("loss = (per_token_loss * mask).sum() / normalizer",)
CLIP = ClipConfig(low=0.2, high=0.28)
ALGORITHMS = {
    "grpo": Algorithm(CLIP, "sequence", {"loss_type": "grpo"}, CLIP_LINES + SEQUENCE_LINES),
    "dr_grpo": Algorithm(
        CLIP,
        "constant",
        {"loss_type": "dr_grpo", "scale_rewards": "none"},
        (*CLIP_LINES, "loss = (per_token_loss * mask).sum() / (per_token_loss.size(0) * self.max_completion_length)"),
    ),
    "dapo": Algorithm(CLIP, "token", {"loss_type": "dapo"}, CLIP_LINES + TOKEN_LINES),
    "dual clip": Algorithm(
        ClipConfig(low=0.2, high=0.28, dual=1.5),
        "token",
        {"loss_type": "dapo", "delta": 1.5},
        (*CLIP_LINES, "coef_1 = torch.clamp(coef_1, max=self.args.delta)"),
    ),
    "cispo": Algorithm(
        CispoConfig(high=1.1),
        "token",
        {"loss_type": "cispo", "epsilon_high": 1.1},
        ("clamped_ratios = torch.clamp(coef_1, max=self.epsilon_high).detach()", *TOKEN_LINES),
    ),
    # TRL weighs the KL by the ratio of the sequence, we by the token's: compared without that weight.
    "gspo": Algorithm(
        GspoConfig(low=3e-4, high=4e-4),
        "sequence",
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        ("log_importance_weights = log_importance_weights.unsqueeze(-1)", *CLIP_LINES, *SEQUENCE_LINES),
        corrected=False,
    ),
    "sapo": Algorithm(
        SapoConfig(),
        "sequence",
        {"loss_type": "sapo"},
        ("soft_coef_1 = torch.sigmoid(temperatures * (coef_1 - 1)) * 4 / temperatures", *SEQUENCE_LINES),
        clips=False,
    ),
}


def our_loss(
    algorithm: Algorithm,
    tokens: PolicyTokens,
    reference: torch.Tensor | None,
    totals: StepTotals,
    *,
    beta: float,
    corrected: bool,
) -> PolicyLoss:
    """The whole loss of a micro-batch, KL included."""
    found = policy_loss(algorithm.surrogate, tokens, totals, algorithm.aggregation)
    if not beta:
        return found
    config = KlConfig(estimator="k3", corrected=corrected)
    term = kl_term(config, tokens.logprobs, reference, tokens.old_logprobs, tokens.mask)
    return PolicyLoss(found.loss + beta * aggregate(term, tokens.mask, algorithm.aggregation, totals), found.diagnostics)


def executed_lines(function: Callable[..., Any], call: Callable[[], Any]) -> tuple[Any, set[str]]:
    """The result of `call`, and the source lines of `function` that it ran."""
    source, start = inspect.getsourcelines(function)
    numbers: set[int] = set()

    def local(frame, event, arg):
        numbers.add(frame.f_lineno)
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: local if frame.f_code is function.__code__ else None)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, {source[number - start].strip() for number in numbers}


class Comparison(GRPOTrainer):
    """TRL's trainer; computes our loss next to each of its own."""

    def __init__(self, *args, algorithm, masked, **kwargs):
        super().__init__(*args, **kwargs)
        self.algorithm, self.masked = algorithm, masked
        self.losses, self.gradients, self.diagnostics, self.lines = [], [], [], set()

    def _compute_loss(self, model, inputs):
        if self.masked:
            for each in self._buffered_inputs:
                each["tool_mask"] = (each["completion_ids"] % 3 != 0).long()
            tokens = sum((each["completion_mask"] * each["tool_mask"]).sum() for each in self._buffered_inputs)
            for each in self._buffered_inputs:
                each["num_items_in_batch"] = tokens
        theirs = self.trl_loss(model, inputs)
        ours = self._our_loss(model, inputs)
        self.losses.append((ours.loss.item(), theirs.item()))
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        our_gradients = torch.autograd.grad(ours.loss, parameters, retain_graph=True)
        their_gradients = torch.autograd.grad(theirs, parameters, retain_graph=True)
        self.gradients.append((our_gradients, their_gradients))
        self.diagnostics.append(ours.diagnostics)
        return theirs

    def trl_loss(self, model, inputs):
        """TRL's own loss; the lines of it that ran are in `lines`."""
        theirs, self.lines = executed_lines(GRPOTrainer._compute_loss, lambda: GRPOTrainer._compute_loss(self, model, inputs))
        return theirs

    def _our_loss(self, model, inputs) -> PolicyLoss:
        totals = StepTotals(
            tokens=int(self._buffered_inputs[0]["num_items_in_batch"]),
            sequences=sum(len(each["advantages"]) for each in self._buffered_inputs),
            length=self.max_completion_length,
        )
        advantages = inputs["advantages"].tolist()
        (batch,) = micro_batches(_rows(inputs, inputs["old_per_token_logps"]), advantages, 10**6)
        reference = None
        if self.beta:
            (as_reference,) = micro_batches(_rows(inputs, inputs["ref_per_token_logps"]), advantages, 10**6)
            reference = as_reference.behaviour_logprobs
        logprobs, _ = action_logprobs(model, batch, chunk=16)
        tokens = PolicyTokens(logprobs, batch.behaviour_logprobs, batch.advantages, batch.action_mask)
        corrected = self.args.use_bias_correction_kl
        return our_loss(self.algorithm, tokens, reference, totals, beta=self.beta, corrected=corrected)


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
                "temperature": TEMPERATURE,
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


@pytest.fixture(scope="session")
def algorithms() -> dict[str, Algorithm]:
    """All algorithms, by name."""
    return ALGORITHMS


@pytest.fixture(params=ALGORITHMS)
def algorithm(request) -> Algorithm:
    """Each algorithm in turn."""
    return ALGORITHMS[request.param]


@pytest.fixture(scope="session")
def whole_loss():
    """Our loss of a micro-batch, KL included."""
    return our_loss


@pytest.fixture(scope="session")
def generation() -> SimpleNamespace:
    """What the trainers generate: groups of completions of the prompts, with these rewards."""
    return SimpleNamespace(groups=[prompt for prompt in PROMPTS for _ in range(GROUP)], rewards=REWARDS, longest=LONGEST)


@pytest.fixture
def make_trainer(tmp_path):
    """Make a trainer of one generation, with two optimiser steps on it of two micro-batches each."""

    def make(algorithm: Algorithm, *, beta=0.0, masked=False, corrected=True, **settings) -> Comparison:
        return Comparison(
            model=_policy(),
            reward_funcs=lambda completions, **_: REWARDS[: len(completions)],
            processing_class=_tokenizer(),
            train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
            algorithm=algorithm,
            masked=masked,
            args=GRPOConfig(
                **{
                    "output_dir": str(tmp_path),
                    "per_device_train_batch_size": 6,
                    "gradient_accumulation_steps": 2,
                    "num_generations": GROUP,
                    "num_iterations": 2,
                    "max_steps": 2,
                    "max_completion_length": LONGEST,
                    "temperature": TEMPERATURE,
                    "learning_rate": 0.03,
                    "lr_scheduler_type": "constant",
                    "beta": beta,
                    "use_bias_correction_kl": corrected,
                    "epsilon": 0.2,
                    "epsilon_high": 0.28,
                    "use_cpu": True,
                    "bf16": False,
                    "report_to": "none",
                    "save_strategy": "no",
                    "logging_steps": 100,
                    "disable_tqdm": True,
                    "seed": 1,
                }
                | algorithm.theirs
                | settings
            ),
        )

    return make


@pytest.fixture
def train(make_trainer):
    """Make a trainer and run it."""

    def run(algorithm: Algorithm, **settings) -> Comparison:
        trainer = make_trainer(algorithm, **settings)
        trainer.train()
        return trainer

    return run
