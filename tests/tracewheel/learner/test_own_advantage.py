"""An advantage of a user's own: named in a profile, called, checked, in the key; and a value where a section should be."""

import sys

import pytest
import torch
import yaml

from tasks.engine.kinds import code_of
from tracewheel.config import PolicyGradientConfig, RetrainConfig, load_config, load_stored_config
from tracewheel.core.errors import ConfigError
from tracewheel.core.own_code import OwnCodeError
from tracewheel.learner.advantages.trajectories import trajectory_advantages
from tracewheel.operations.preflight import preflight

REWARDS, GROUPS = torch.tensor([1.0, 0.0, float("nan"), 4.0], dtype=torch.double), ["a", "a", "a", "b"]
MODULE = """
import torch

def median(rewards, groups, factor=1.0):
    kept = rewards[rewards.isfinite()]
    return factor * (rewards - kept.median())

def short(rewards, groups):
    return rewards[:2]

def listed(rewards, groups):
    return rewards.tolist()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_advantage.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_advantage"
    sys.modules.pop("own_advantage", None)


def learner(kind, **args):
    return PolicyGradientConfig.model_validate({"advantage": {"kind": kind, "args": args}})


def test_a_function_of_one_s_own_is_called_with_its_arguments_and_unscored_episodes_get_nothing(module):
    config = learner(f"{module}:median", factor=2.0)
    assert trajectory_advantages(config.advantage, REWARDS, GROUPS).tolist() == [0.0, -2.0, 0.0, 6.0]


@pytest.mark.parametrize(("name", "says"), [("short", r"returns a Tensor \(2,\)"), ("listed", "returns a list")])
def test_a_result_of_another_form_says_what_is_wanted(module, name, says):
    config = learner(f"{module}:{name}")
    with pytest.raises(OwnCodeError, match=f"own_advantage:{name}' {says}.*N is 4"):
        trajectory_advantages(config.advantage, torch.zeros(4), GROUPS)


def test_its_code_is_in_the_key_of_an_update_and_check_tries_it(module):
    config = RetrainConfig.model_validate({"name": "own", "learner": {"advantage": {"kind": f"{module}:median"}}})
    assert module in code_of(["tracewheel.learner.update"], config, ("learner",)).plugins
    line = next(line for line in preflight(config) if line.name == "advantage")
    assert line.state == "ok" and "own_advantage:median: of rewards 1, 0" in line.says
    wrong = RetrainConfig.model_validate({"name": "own", "learner": {"advantage": {"kind": f"{module}:meadian"}}})
    line = next(line for line in preflight(wrong) if line.name == "advantage")
    assert line.state == "error" and "did you mean own_advantage:median?" in line.says


def test_a_stored_profile_imports_none(tmp_path, monkeypatch):
    monkeypatch.delenv("TRACEWHEEL_GIVEN_KINDS", raising=False)
    values = {"name": "x", "learner": {"advantage": {"kind": "stored_advantage:f"}}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    config = load_stored_config(tmp_path)
    with pytest.raises(ConfigError, match="data imports nothing"):
        trajectory_advantages(config.learner.advantage, REWARDS, GROUPS)


def test_a_value_where_a_section_should_be_is_answered_with_its_kind(tmp_path):
    (tmp_path / "p.yaml").write_text("name: x\n")
    for section, value in (("learner.advantage", "leave_one_out"), ("learner", "dapo"), ("environment", "workspace")):
        with pytest.raises(ConfigError, match=rf"{section} holds keys, not a value: did you mean {section}\.kind={value}\?"):
            load_config(tmp_path / "p.yaml", [f"{section}={value}"])
    with pytest.raises(ConfigError, match=r"learner\.advantage.*'median'"):
        load_config(tmp_path / "p.yaml", ["learner.advantage.kind=median"])
