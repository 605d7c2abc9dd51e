"""Our losses against TRL's: its trainer generates, scores and trains; each of its losses is compared with ours.

`Comparison` overrides nothing of TRL's arithmetic: it lets `GRPOTrainer._compute_loss` run on the
trainer's own micro-batches and computes our loss of the same tokens beside it. The lines of TRL that ran
are recorded, so that an algorithm cannot pass by another one's branch, nor without TRL.
"""

import dataclasses
import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
import torch
import trl.trainer.grpo_trainer
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from tracewheel.config import (
    BatchAdvantageConfig,
    CispoConfig,
    ClipConfig,
    GroupAdvantageConfig,
    GspoConfig,
    KlConfig,
    PolicyGradientConfig,
    SapoConfig,
    SurrogateConfig,
)
from tracewheel.learner.advantages import trajectory_advantages, zero_variance, zero_variance_share
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.losses import Diagnostics, PolicyLoss, PolicyTokens, StepTotals, aggregate, kl_term, policy_loss

TEMPERATURE = 0.9
PROMPTS = ["w3 w4 w5", "w6 w7", "w8 w9 w10 w11"]
GROUP = 4
LONGEST = 12
REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, 0.2, 0.9, 0.4]


@dataclass(frozen=True)
class Algorithm:
    """One algorithm in TRL's words and in ours; `lines` are pieces of TRL's code that only it (or its kin) runs."""

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
    # TRL weighs the KL by the ratio of the sequence, we by the token's: compared without it.
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
    term = kl_term(config, "reverse", tokens.logprobs, reference, tokens.old_logprobs, tokens.mask)
    return PolicyLoss(found.loss + beta * aggregate(term, tokens.mask, algorithm.aggregation, totals), found.diagnostics)


def executed_lines(function: Callable[..., Any], call: Callable[[], Any]) -> tuple[Any, set[str]]:
    """What `call` returns, and the source lines of `function` that ran meanwhile."""
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
    """TRL's trainer, with our loss computed beside each of its own."""

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
        theirs, self.lines = executed_lines(
            GRPOTrainer._compute_loss, lambda: super(Comparison, self)._compute_loss(model, inputs)
        )
        ours = self._our_loss(model, inputs)
        self.losses.append((ours.loss.item(), theirs.item()))
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        our_gradients = torch.autograd.grad(ours.loss, parameters, retain_graph=True)
        their_gradients = torch.autograd.grad(theirs, parameters, retain_graph=True)
        self.gradients.append((our_gradients, their_gradients))
        self.diagnostics.append(ours.diagnostics)
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


def _trainer(tmp_path, algorithm: Algorithm, *, beta=0.0, masked=False, corrected=True, **settings) -> Comparison:
    """One generation, two optimiser steps on it, two micro-batches each."""
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


def _train(tmp_path, algorithm: Algorithm, **settings) -> Comparison:
    trainer = _trainer(tmp_path, algorithm, **settings)
    trainer.train()
    return trainer


def test_it_is_trl_that_runs():
    """The very function of the installed package, of the release whose arithmetic is claimed to be met."""
    assert importlib.metadata.version("trl").startswith("1.16.")
    assert trl.trainer.grpo_trainer.GRPOTrainer is GRPOTrainer
    assert inspect.getsourcefile(GRPOTrainer._compute_loss) == inspect.getsourcefile(trl.trainer.grpo_trainer)
    source = inspect.getsource(GRPOTrainer._compute_loss)
    for algorithm in ALGORITHMS.values():
        assert all(line in source for line in algorithm.lines)


def test_presets_have_the_numbers_of_trl_and_the_papers():
    """A preset must choose the surrogate and aggregation that are compared with TRL below."""
    trl_default = {each.name: each.default for each in dataclasses.fields(GRPOConfig)}
    for name in ("grpo", "dr_grpo", "dapo", "cispo", "gspo", "sapo"):
        preset = PolicyGradientConfig(kind=name)
        assert type(preset.surrogate) is type(ALGORITHMS[name].surrogate)
        if name != "grpo":  # its preset weighs tokens alike: TRL's default loss, "dapo"
            assert preset.aggregation == ALGORITHMS[name].aggregation
    assert trl_default["loss_type"] == "dapo" and PolicyGradientConfig(kind="grpo").aggregation == "token"
    assert PolicyGradientConfig(kind="grpo").surrogate == ClipConfig(low=trl_default["epsilon"])
    assert PolicyGradientConfig(kind="dapo").surrogate == ClipConfig(low=0.2, high=0.28)
    assert PolicyGradientConfig(kind="gspo").surrogate == GspoConfig(low=3e-4, high=4e-4)
    assert PolicyGradientConfig(kind="cispo").surrogate == CispoConfig(high=5.0)
    assert PolicyGradientConfig(kind="sapo").surrogate == SapoConfig(
        temperature_positive=trl_default["sapo_temperature_pos"], temperature_negative=trl_default["sapo_temperature_neg"]
    )
    assert PolicyGradientConfig(kind="dr_grpo").advantage == GroupAdvantageConfig(scale=False)
    for name in ("dr_grpo", "dapo", "cispo", "gspo", "sapo"):
        assert PolicyGradientConfig(kind=name).kl.weight == trl_default["beta"] == 0.0


CASES = [(name, beta, ALGORITHMS[name].corrected, True) for name in ALGORITHMS for beta in (0.0, 0.1)]
CASES += [("dapo", 0.1, False, True), ("grpo", 0.1, False, True), ("dapo", 0.1, True, False)]


@pytest.mark.parametrize(("name", "beta", "corrected", "masked"), CASES)
def test_loss_and_gradient_equal_trl(tmp_path, name, beta, corrected, masked):
    algorithm = ALGORITHMS[name]
    trainer = _train(tmp_path, algorithm, beta=beta, corrected=corrected, masked=masked)
    assert set(algorithm.lines) <= trainer.lines
    assert len(trainer.losses) == 4
    for ours, theirs in trainer.losses:
        assert ours == pytest.approx(theirs, rel=0, abs=1e-6)
    assert max(abs(theirs) for _, theirs in trainer.losses) > 0.01
    largest = max(gradient.abs().max() for _, theirs in trainer.gradients for gradient in theirs)
    assert largest > 1e-3
    for ours, theirs in trainer.gradients:
        for our, their in zip(ours, theirs, strict=True):
            assert (our - their).abs().max() <= 1e-5 * largest
    second_step = sum(trainer.diagnostics[2:], Diagnostics())
    assert second_step.ratio_max > 1.28
    assert (second_step.clipped > 0) == algorithm.clips


def _random_inputs(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """A micro-batch of TRL's, with log-probabilities far apart and masks without order."""
    rows, tokens = (int(torch.randint(1, high, (), generator=generator)) for high in (6, LONGEST + 1))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    mask = (torch.rand(rows, tokens, generator=generator) < 0.8).long()
    tool_mask = (torch.rand(rows, tokens, generator=generator) < 0.7).long()
    old = -normal(rows, tokens).abs()
    return {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.long),
        "completion_ids": torch.zeros(rows, tokens, dtype=torch.long),
        "completion_mask": mask,
        "tool_mask": tool_mask,
        "advantages": normal(rows) * (torch.rand(rows, generator=generator) < 0.9),
        "old_per_token_logps": old,
        "ref_per_token_logps": old + 0.5 * normal(rows, tokens),
        "logprobs": old + 0.3 * normal(rows, tokens),
    }


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_on_random_batches(tmp_path, name, beta):
    """TRL's `_compute_loss` on made-up log-probabilities: only its pass through the model is left out."""
    algorithm = ALGORITHMS[name]
    trainer = _trainer(tmp_path, algorithm, beta=beta, corrected=algorithm.corrected)
    trainer.current_gradient_accumulation_steps = 2
    generator = torch.Generator().manual_seed(3)
    clipped, largest = 0.0, 0.0
    for _ in range(40):
        inputs = _random_inputs(generator)
        theirs_in, ours_in = (inputs["logprobs"].clone().requires_grad_() for _ in range(2))
        trainer._get_per_token_logps_and_entropies = lambda *_, given=theirs_in, **__: (given, torch.zeros_like(given), None)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        # Two micro-batches a step, as the trainer is set up; the other one is as large.
        totals = StepTotals(tokens=max(2 * int(mask.sum()), 1), sequences=2 * len(mask), length=LONGEST)
        inputs["num_items_in_batch"] = torch.tensor(float(totals.tokens))
        theirs, lines = executed_lines(
            GRPOTrainer._compute_loss, lambda given=inputs: GRPOTrainer._compute_loss(trainer, trainer.model, given)
        )
        assert set(algorithm.lines) <= lines
        advantages = inputs["advantages"].unsqueeze(1).expand_as(mask)
        tokens = PolicyTokens(ours_in, inputs["old_per_token_logps"], advantages, mask)
        reference = inputs["ref_per_token_logps"]
        ours = our_loss(algorithm, tokens, reference, totals, beta=beta, corrected=algorithm.corrected)
        assert ours.loss.item() == pytest.approx(theirs.item(), rel=0, abs=1e-6)
        theirs.backward()
        ours.loss.backward()
        torch.testing.assert_close(ours_in.grad, theirs_in.grad, rtol=0, atol=1e-6)
        clipped, largest = clipped + ours.diagnostics.clipped, max(largest, abs(theirs.item()))
    assert largest > 0.3
    assert (clipped > 0) == algorithm.clips


ADVANTAGES = {
    "group": GroupAdvantageConfig(scale=True),
    "none": GroupAdvantageConfig(scale=False),
    "batch": BatchAdvantageConfig(center="group"),
}


@pytest.mark.parametrize("scale_rewards", ADVANTAGES)
def test_advantages_equal_trl(tmp_path, scale_rewards):
    trainer = _train(tmp_path, ALGORITHMS["dapo"], scale_rewards=scale_rewards)
    theirs = torch.tensor(list(trainer._logs["advantages"]))
    rewards = torch.tensor([float("nan") if reward is None else reward for reward in REWARDS])
    groups = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    ours = trajectory_advantages(ADVANTAGES[scale_rewards], rewards, groups)
    assert theirs.shape == ours.shape
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert theirs.abs().max() > 0.4
    assert zero_variance(rewards, groups).tolist() == [False] * 4 + [True] * 4 + [False] * 4
    assert zero_variance_share(rewards, groups) == pytest.approx(1 / 3)


def test_clip_share_equals_trl(tmp_path):
    trainer = _train(tmp_path, ALGORITHMS["dapo"], masked=True)
    (logged,) = [entry["clip_ratio/region_mean"] for entry in trainer.state.log_history if "clip_ratio/region_mean" in entry]
    ours = [each.clip_share for each in trainer.diagnostics]
    assert logged > 0.01
    assert sum(ours) / len(ours) == pytest.approx(logged, abs=1e-6)
