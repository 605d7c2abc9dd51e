"""Objectives: values, the reward from them, and storage."""

import pytest

from tracewheel.config import RetrainConfig, RubricConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.files import write_records
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.tasks import workspace_task
from tracewheel.scoring.rubric import Rubric, success_of
from tracewheel.scoring.score import read_scores, score

TASK = workspace_task(
    prompt="Move it.",
    initial_state={"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1", "/a/y.txt": "2"}},
    goal={
        "selector": {"kind": "pattern", "value": ".log"},
        "source": "/a",
        "destination": "/b",
        "manifest": "/b/manifest.json",
    },
)
SOLVED = {"/b/x.log": "1", "/b/manifest.json": '["x.log"]', "/a/y.txt": "2"}
SPOILT = {"/b/x.log": "1", "/b/manifest.json": '["x.log"]', "/a/y.txt": "other"}
OBJECTIVES = [
    {"kind": "part", "name": "success", "part": "success", "weight": 2},
    {"kind": "part", "name": "safety", "part": "workspace.untouched", "weight": 1},
    {"kind": "cost", "name": "thrift", "measure": "turns", "budget": 8, "weight": 1},
]


def trajectory(files, turns=2, identity="t", malformed=0):
    """Each turn has one prompt token, two sampled tokens and three calls."""
    turn_list = [
        {"start": 3 * n + 1, "end": 3 * n + 3, "calls": 3, "malformed": malformed, "policy_version": 0} for n in range(turns)
    ]
    return Trajectory(
        id=identity,
        task_id=TASK.id,
        group="g",
        sample=0,
        seed=0,
        policy_version=0,
        temperature=1.0,
        token_ids=[1, 2, 3] * turns,
        action_mask=[0, 1, 1] * turns,
        logprobs=[0.0, -0.1, -0.1] * turns,
        turns=turn_list,
        final_state={"folders": ["", "/a", "/b"], "files": files},
        messages=[],
        stop_reason="finished",
    )


def judged(objectives, **values):
    return Rubric(RubricConfig.model_validate({"objectives": objectives}), [TASK]).score(TASK, trajectory(**values))


def test_the_reward_is_the_weighted_mean_and_each_objective_is_kept():
    scored = judged(OBJECTIVES, files=SOLVED)
    assert scored.breakdown["objective.success"] == 1.0
    assert scored.breakdown["objective.safety"] == 1.0
    assert scored.breakdown["objective.thrift"] == 1 - 2 / 8
    assert scored.total == pytest.approx((2 * 1 + 1 * 1 + 1 * 0.75) / 4)
    assert success_of(scored) == 1.0


def test_a_failure_gets_no_cost_reward():
    scored = judged(OBJECTIVES, files=SPOILT)
    assert (scored.breakdown["objective.success"], scored.breakdown["objective.safety"]) == (0.0, 0.0)
    assert scored.total == 0.0


@pytest.mark.parametrize(("measure", "spent"), [("turns", 2), ("calls", 6), ("generated_tokens", 4), ("trajectory_tokens", 6)])
def test_cost_by_each_measure(measure, spent):
    cost = {"kind": "cost", "name": "cost", "measure": measure, "budget": 10}
    assert judged([cost], files=SOLVED).total == pytest.approx(1 - spent / 10)
    assert judged([{**cost, "budget": 1}], files=SOLVED).total == 0.0


def test_an_objective_of_weight_0_is_reported_only():
    scored = judged([OBJECTIVES[0], {**OBJECTIVES[2], "weight": 0}], files=SOLVED)
    assert (scored.total, scored.breakdown["objective.thrift"]) == (1.0, 0.75)


def test_the_penalty_is_subtracted_from_the_mean():
    config = RubricConfig.model_validate({"objectives": OBJECTIVES[:1], "malformed_penalty": 0.1})
    assert Rubric(config, [TASK]).score(TASK, trajectory(SOLVED, malformed=1)).total == pytest.approx(0.8)


def test_without_objectives_the_breakdown_has_none():
    assert not [name for name in judged([], files=SOLVED).breakdown if name.startswith("objective")]


def test_impossible_objectives_are_errors():
    for objectives, said in (
        ([OBJECTIVES[0], OBJECTIVES[0]], "distinct names"),
        ([{**OBJECTIVES[0], "weight": 0}], "no objective has a weight"),
        ([{"kind": "cost", "name": "c", "budget": 0}], "greater than or equal to 1"),
    ):
        with pytest.raises(ValueError, match=said):
            RubricConfig.model_validate({"objectives": objectives})


def test_stored_scores_keep_family_objectives_and_turn_rewards(tmp_path):
    write_records(tmp_path / "trajectories.parquet", [trajectory(SOLVED), trajectory(SPOILT, identity="u")])
    config = RetrainConfig.model_validate({"name": "t", "rubric": {"objectives": OBJECTIVES, "turn_rewards": True}})
    metrics = score(config, [TASK], tmp_path / "trajectories.parquet", tmp_path)
    first, second = read_scores(tmp_path / "scores.parquet")
    assert (first.family, first.turn_rewards) == ("pattern", None)
    assert "0 assistant messages" in first.detail and metrics["without_turn_rewards"] == 2
    assert metrics["breakdown"]["objective.safety"] == 0.5
    assert second.breakdown["objective.thrift"] == 0.0


def test_an_objective_without_its_part_in_any_trajectory_is_a_config_error(tmp_path):
    write_records(tmp_path / "trajectories.parquet", [trajectory(SOLVED)])
    objectives = [{"kind": "part", "name": "safety", "part": "workspace.unharmed"}]
    config = RetrainConfig.model_validate({"name": "t", "rubric": {"objectives": objectives}})
    with pytest.raises(ConfigError, match=r"'safety': the breakdown has no part 'workspace.unharmed'; its parts are success,"):
        score(config, [TASK], tmp_path / "trajectories.parquet", tmp_path)
