"""The TRL under comparison is the installed release, and our presets have its numbers."""

import dataclasses
import importlib.metadata
import inspect

import trl.trainer.grpo_trainer
from trl import GRPOConfig, GRPOTrainer

from tracewheel.config import (
    CispoConfig,
    ClipConfig,
    GroupAdvantageConfig,
    GspoConfig,
    PolicyGradientConfig,
    SapoConfig,
)
from tracewheel.learner.losses.sapo import NEGATIVE, POSITIVE


def test_the_installed_trl_computes_the_loss(algorithms):
    """The release that the docs name, and the function that holds each algorithm's lines."""
    assert importlib.metadata.version("trl").startswith("1.16.")
    assert trl.trainer.grpo_trainer.GRPOTrainer is GRPOTrainer
    assert inspect.getsourcefile(GRPOTrainer._compute_loss) == inspect.getsourcefile(trl.trainer.grpo_trainer)
    source = inspect.getsource(GRPOTrainer._compute_loss)
    for algorithm in algorithms.values():
        assert all(line in source for line in algorithm.lines)


def test_presets_have_the_numbers_of_trl_and_the_papers(algorithms):
    """Each preset chooses the surrogate and aggregation that are compared with TRL."""
    trl_default = {each.name: each.default for each in dataclasses.fields(GRPOConfig)}
    for name in ("grpo", "dr_grpo", "dapo", "cispo", "gspo", "sapo"):
        preset = PolicyGradientConfig(kind=name)
        assert type(preset.surrogate) is type(algorithms[name].surrogate)
        if name != "grpo":  # its preset weighs tokens alike: TRL's default loss, "dapo"
            assert preset.aggregation == algorithms[name].aggregation
    assert trl_default["loss_type"] == "dapo" and PolicyGradientConfig(kind="grpo").aggregation == "token"
    assert PolicyGradientConfig(kind="grpo").surrogate == ClipConfig(low=trl_default["epsilon"])
    assert PolicyGradientConfig(kind="dapo").surrogate == ClipConfig(low=0.2, high=0.28)
    assert PolicyGradientConfig(kind="gspo").surrogate == GspoConfig(low=3e-4, high=4e-4)
    assert PolicyGradientConfig(kind="cispo").surrogate == CispoConfig(high=5.0)
    assert PolicyGradientConfig(kind="sapo").surrogate == SapoConfig()
    assert (trl_default["sapo_temperature_pos"], trl_default["sapo_temperature_neg"]) == (POSITIVE, NEGATIVE)
    assert PolicyGradientConfig(kind="dr_grpo").advantage == GroupAdvantageConfig(scale=False)
    for name in ("dr_grpo", "dapo", "cispo", "gspo", "sapo"):
        assert PolicyGradientConfig(kind=name).kl.weight == trl_default["beta"] == 0.0
