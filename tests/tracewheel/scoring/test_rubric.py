"""Rubrics: weights, penalties, and unscored episodes."""

import math

import pytest
import torch

from tracewheel.config import RubricConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.tasks import workspace_task
from tracewheel.learner.advantages.group import group_advantages
from tracewheel.scoring.rubric import Rubric, success_of
from tracewheel.scoring.verifiers import VERIFIERS

TASK = workspace_task(
    prompt="Move it.",
    initial_state={"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1"}},
    goal={
        "selector": {"kind": "pattern", "value": ".log"},
        "source": "/a",
        "destination": "/b",
        "manifest": "/b/manifest.json",
    },
)
SOLVED = {"folders": ["", "/a", "/b"], "files": {"/b/x.log": "1", "/b/manifest.json": '["x.log"]'}}
UNSOLVED = {"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1"}}


def trajectory(final_state=SOLVED, malformed=(0,), stop_reason="finished", detail=""):
    turns = [{"start": 0, "end": 1, "calls": 1, "malformed": count, "policy_version": 0} for count in malformed]
    return Trajectory("t", TASK.id, "g", 0, 0, 0, 1.0, [1], [1], [-0.1], turns, final_state, [], stop_reason, detail)


class Half:
    kind = "half"

    def verify(self, task, final_state):
        return 0.5, {"part": 0.25}


class Broken:
    kind = "broken"

    def verify(self, task, final_state):
        return final_state["no such key"]


class OffScale:
    kind = "off_scale"

    def verify(self, task, final_state):
        return 3.0, {}


@pytest.fixture(autouse=True)
def more_verifiers(monkeypatch):
    for verifier in (Half, Broken, OffScale):
        monkeypatch.setitem(VERIFIERS, verifier.kind, verifier)


def rubric(**values):
    return Rubric(RubricConfig.model_validate(values), [TASK])


def test_the_default_rubric_is_the_task_s_own_verifier():
    score = rubric().score(TASK, trajectory())
    assert (score.status, score.total) == ("scored", 1.0)
    assert score.breakdown == {
        "workspace": 1.0,
        "workspace.files_moved": 1.0,
        "workspace.manifest": 1.0,
        "workspace.untouched": 1.0,
        "success": 1.0,
    }
    assert rubric().score(TASK, trajectory(UNSOLVED)).total == 0.0


def test_weights_shape_the_reward_and_the_first_verifier_decides_success():
    mixed = rubric(verifiers=[{"kind": "task", "weight": 3}, {"kind": "half", "weight": 1}])
    solved, unsolved = mixed.score(TASK, trajectory()), mixed.score(TASK, trajectory(UNSOLVED))
    assert solved.total == pytest.approx((3 * 1.0 + 1 * 0.5) / 4)
    assert unsolved.total == pytest.approx(0.5 / 4)
    assert (success_of(solved), success_of(unsolved)) == (1.0, 0.0)
    assert solved.breakdown["half.part"] == 0.25


def test_malformed_calls_cost_reward_but_not_success():
    charging = rubric(malformed_penalty=0.1)
    score = charging.score(TASK, trajectory(malformed=(1, 0, 2)))
    assert score.total == pytest.approx(0.7)
    assert score.breakdown["malformed_penalty"] == pytest.approx(0.3)
    assert success_of(score) == 1.0


def test_malformed_calls_cost_a_failed_episode_too():
    """Otherwise a group that only fails has no gradient towards well-formed calls."""
    charging = rubric(malformed_penalty=0.1)
    totals = [charging.score(TASK, trajectory(UNSOLVED, malformed=(count,))).total for count in (0, 1, 5, 50)]
    assert totals == pytest.approx([0.0, -0.1, -0.5, -1.0])
    assert group_advantages(torch.tensor(totals[:2]), ["task"] * 2, scale=True).tolist() == pytest.approx([0.7, -0.7], abs=0.01)


def test_a_failed_rollout_has_no_total():
    score = rubric().score(TASK, trajectory(UNSOLVED, stop_reason="infrastructure_failed", detail="engine gone"))
    assert (score.status, score.total, score.detail) == ("infrastructure_failed", None, "engine gone")
    assert math.isnan(success_of(score))


@pytest.mark.parametrize("kind, said", [("broken", "KeyError"), ("off_scale", "outside 0 to 1")])
def test_a_verifier_that_fails_leaves_the_trajectory_unscored(kind, said):
    score = rubric(verifiers=[{"kind": "task"}, {"kind": kind}]).score(TASK, trajectory())
    assert (score.status, score.total, score.breakdown) == ("unscored", None, {})
    assert kind in score.detail and said in score.detail


def test_a_missing_verifier_is_an_error_before_scoring():
    with pytest.raises(ConfigError, match="no verifier is called 'other'"):
        rubric(verifiers=[{"kind": "other"}])
