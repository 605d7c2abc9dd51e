"""Losses, gradients, advantages and clip shares while TRL's trainer generates and trains."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from tracewheel.config import BatchAdvantageConfig, GroupAdvantageConfig, PolicyGradientConfig
from tracewheel.learner.advantages.group import zero_variance, zero_variance_share
from tracewheel.learner.advantages.trajectories import trajectory_advantages
from tracewheel.learner.losses.policy import Diagnostics


def assert_equal_losses(trainer):
    """Our losses and gradients are TRL's, and the second step is off-policy enough to clip."""
    assert set(trainer.algorithm.lines) <= trainer.lines
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
    assert (second_step.clipped > 0) == trainer.algorithm.clips


def test_loss_and_gradient_equal_trl(train, algorithm):
    """With the KL, so that one training compares surrogate and KL."""
    assert_equal_losses(train(algorithm, beta=0.1, corrected=algorithm.corrected, masked=True))


@pytest.mark.parametrize(
    ("name", "beta", "corrected", "masked"),
    [("grpo", 0.0, True, True), ("grpo", 0.1, False, True), ("dapo", 0.1, False, True), ("dapo", 0.1, True, False)],
)
def test_loss_and_gradient_equal_trl_without_kl_correction_or_mask(train, algorithms, name, beta, corrected, masked):
    assert_equal_losses(train(algorithms[name], beta=beta, corrected=corrected, masked=masked))


ADVANTAGES = {
    "group": GroupAdvantageConfig(scale=True),
    "none": GroupAdvantageConfig(scale=False),
    "batch": BatchAdvantageConfig(center="group"),
}


@pytest.mark.parametrize("scale_rewards", ADVANTAGES)
def test_advantages_equal_trl(train, algorithms, generation, scale_rewards):
    trainer = train(algorithms["dapo"], scale_rewards=scale_rewards)
    theirs = torch.tensor(list(trainer._logs["advantages"]))
    rewards = torch.tensor([float("nan") if reward is None else reward for reward in generation.rewards])
    ours = trajectory_advantages(ADVANTAGES[scale_rewards], rewards, generation.groups)
    assert theirs.shape == ours.shape
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert theirs.abs().max() > 0.4
    assert zero_variance(rewards, generation.groups).tolist() == [False] * 4 + [True] * 4 + [False] * 4
    assert zero_variance_share(rewards, generation.groups) == pytest.approx(1 / 3)


def test_clip_share_equals_trl(train, algorithms):
    trainer = train(algorithms["dapo"], masked=True)
    (logged,) = [entry["clip_ratio/region_mean"] for entry in trainer.state.log_history if "clip_ratio/region_mean" in entry]
    ours = [each.clip_share for each in trainer.diagnostics]
    assert logged > 0.01
    assert sum(ours) / len(ours) == pytest.approx(logged, abs=1e-6)


def test_the_documents_settings_of_grpo_have_the_mean_of_trls_loss_type(algorithms):
    page = (Path(__file__).parents[5] / "docs/learner.md").read_text()
    rows = re.findall(r"^\|[^|\n]*\| (`learner:[^|]*`) \|.*\| `(\w+)`[^|]*\|$", page, re.MULTILINE)
    assert [loss_type for _, loss_type in rows] == ["grpo", "dapo", "dr_grpo"]
    for settings, loss_type in rows:
        for text in re.findall("`([^`]*)`", settings):
            learner = PolicyGradientConfig.model_validate(yaml.safe_load(text)["learner"])
            assert learner.aggregation == algorithms[loss_type].aggregation
            assert algorithms[loss_type].theirs["loss_type"] == loss_type
