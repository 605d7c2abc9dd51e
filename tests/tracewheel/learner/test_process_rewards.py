"""Rewards that an environment returns on the way: through rollout, score and update to the advantages of their turns."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tracewheel.config import GaeAdvantageConfig, PolicyGradientConfig, RolloutConfig, RubricConfig, ScoreSections
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Trajectory
from tracewheel.environments import Observation
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.learner.scored_trajectories import read_scored_trajectories
from tracewheel.learner.token_advantages import advantages_by_critic, advantages_by_group
from tracewheel.learner.trajectory_table import TrajectoryTable
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric
from tracewheel.scoring.score import read_scores, score

NO_KL = 0.0
REWARD = 0.25


class PaysForLooking(WorkspaceEnvironment):
    """Returns a process reward for each folder that is listed."""

    def step(self, tool, args):
        seen = super().step(tool, args)
        return dataclasses.replace(seen, reward=REWARD) if tool == "list_files" and not seen.error else seen


class PaysInfinity(WorkspaceEnvironment):
    def step(self, tool, args):
        return Observation("ok", reward=math.inf)


class Corridor:
    """The step of a Gymnasium environment: observation, reward, terminated, truncated, info; NumPy numbers."""

    def reset(self):
        self.at = 0
        return np.array([0])

    def step(self, action):
        self.at += action
        return np.array([self.at]), np.float64(-0.125 if self.at < 2 else 0.875), self.at >= 2, False, {}


class CorridorWorld:
    """A Gymnasium-like environment as a world of tools."""

    kind = "corridor"
    system_prompt = ""

    def tools(self):
        return [{"type": "function", "function": {"name": "walk", "parameters": {"type": "object", "properties": {}}}}]

    def task_from_log(self, prompt, logged):
        return None

    def reset(self, task):
        self._corridor = Corridor()
        self._corridor.reset()

    def step(self, tool, args):
        observation, reward, terminated, truncated, _ = self._corridor.step(1)
        return Observation(f"at {observation[0]}", done=terminated or truncated, reward=reward)

    def snapshot(self):
        return {"at": self._corridor.at}


class Arrived:
    kind = "arrived"

    def verify(self, task, final_state):
        return float(final_state["at"] >= 2), {}


@pytest.fixture
def play(renderer, scripted_engine):
    def run(scripts, task):
        engine = scripted_engine(renderer, scripts)
        config = RolloutConfig(max_tokens=4000, max_turn_tokens=400)
        return run_episodes(engine, renderer, config, RolloutPlan([task], samples=len(scripts), seed=0))

    return run


@pytest.fixture
def paying(tasks):
    return dataclasses.replace(tasks[0], environment=f"{__name__}:{PaysForLooking.__name__}")


@pytest.fixture
def scored(play, paying, call_text, tmp_path, profile_with):
    """Two failures of one task, of three turns each; the first episode's second turn has earned a process reward."""
    wrong, look = call_text("read_file", path="/no such file"), call_text("list_files", path=paying.goal["source"])
    write_records(tmp_path / "trajectories.parquet", play([[wrong, look, "Done."], [wrong, wrong, "Done."]], paying))

    def score_with(**rubric):
        config = ScoreSections.of(profile_with(rubric=rubric))
        out = tmp_path / f"scores-{len(rubric)}"
        return score(config, [paying], tmp_path / "trajectories.parquet", out), out / "scores.parquet"

    return tmp_path / "trajectories.parquet", score_with


def by_turn(mask, values):
    """The value at the last token of each turn."""
    ends = [t for t, m in enumerate(mask) if m and not (t + 1 < len(mask) and mask[t + 1])]
    return [float(values[t]) for t in ends]


def test_a_process_reward_raises_the_advantage_of_its_turn(scored):
    trajectories, score_with = scored
    metrics, scores = score_with()
    assert [item.total for item in read_scores(scores)] == [REWARD, 0.0]
    assert (metrics["success"], metrics["breakdown"]["process_reward"]) == (0.0, REWARD)
    frame = read_scored_trajectories([trajectories], [scores]).assign(reward=[REWARD, 0.0])
    assert frame["turn_rewards"][0].tolist() == [0.0, REWARD, 0.0] and frame["outcome"].tolist() == [0.0, 0.0]
    table, masks = TrajectoryTable(frame), [list(mask) for mask in frame["action_mask"]]

    config = PolicyGradientConfig(credit={"kind": "turn", "discount": 0.0})
    _, advantages = advantages_by_group(config, table, NO_KL)
    first, second = (by_turn(mask, values) for mask, values in zip(masks, advantages, strict=True))
    assert first[1] > 0.5 and (first[0], first[2]) == (0.0, 0.0)
    assert second == [0.0, -first[1], 0.0]

    _, by_trajectory = advantages_by_group(PolicyGradientConfig(), table, NO_KL)
    assert by_trajectory[0][-1] == -by_trajectory[1][-1] > 0.5, "without credit by turn the sum counts"

    for granularity in ("token", "turn"):
        advantage = GaeAdvantageConfig(granularity=granularity, lam=0.0, turn_lam=0.0)
        table = table.with_per_token("values", [torch.zeros(len(mask)) for mask in masks])
        batches = table.batches(4096, "cpu")
        found, _ = advantages_by_critic(PolicyGradientConfig(kind="ppo"), advantage, table, batches, NO_KL)
        assert by_turn(masks[0], found[0]) == pytest.approx([0.0, REWARD, 0.0])
        assert by_turn(masks[1], found[1]) == [0.0, 0.0, 0.0]


def test_process_rewards_alone_make_an_update(scored, profile_with, adapter, tmp_path):
    trajectories, score_with = scored
    files = UpdateFiles([trajectories], [score_with()[1]], adapter.parent, adapter, tmp_path / "update")
    assert update(profile_with(), files, iteration=1)["kept_rows"] == 2.0
    kept = update(
        profile_with({"kind": "rejection_sampling", "advantage": {"threshold": REWARD}}),
        UpdateFiles([trajectories], [score_with()[1]], adapter.parent, adapter, tmp_path / "imitated"),
        iteration=1,
    )["kept_rows"]
    assert kept == 0.0, "process rewards do not make a success to imitate"


def test_a_gymnasium_environment_s_rewards_are_stored_with_their_turns(play, tasks, call_text, tmp_path):
    task = dataclasses.replace(tasks[0], environment=f"{__name__}:CorridorWorld", verifier=f"{__name__}:Arrived")
    two_at_once = "\n".join([call_text("walk")] * 2)
    walked, jumped, stood = play([[call_text("walk")], [two_at_once], ["No."]], task)
    assert [turn["reward"] for turn in walked.turns] == [-0.125, 0.875]
    assert [turn["reward"] for turn in jumped.turns] == [0.75], "the calls of a turn are added up, the last one included"
    assert "reward" not in stood.turns[0]
    write_records(tmp_path / "trajectories.parquet", [walked, jumped, stood])
    assert read_records(tmp_path / "trajectories.parquet", Trajectory)[0].turns == walked.turns
    rubric = Rubric(RubricConfig(), [task])
    assert [rubric.score(task, each).total for each in (walked, jumped, stood)] == [1.75, 1.75, 0.0]


def test_a_reward_that_is_no_number_fails_the_episode(play, tasks, call_text):
    task = dataclasses.replace(tasks[0], environment=f"{__name__}:PaysInfinity")
    (episode,) = play([[call_text("list_files", path="/")]], task)
    assert episode.stop_reason == "infrastructure_failed"
    assert episode.detail == (
        "ValueError: the reward of 'list_files' is inf; an observation's reward is a finite number or None"
    )


def test_episodes_without_process_rewards_are_stored_as_before(trajectories):
    for text in read_table(trajectories)["turns"]:
        assert '"reward"' not in text
