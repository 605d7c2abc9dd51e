"""The scoring stage on small stored trajectories."""

import json
import math
import threading
from dataclasses import replace

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import write_records
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import workspace_task
from tracewheel.learner.scored_trajectories import read_scored_trajectories
from tracewheel.scoring.score import read_scores, score

CONFIG = RetrainConfig(name="test")


def make(value, name):
    return workspace_task(
        prompt=f"Move *{value}.",
        initial_state={"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1", "/a/y.txt": "2"}},
        goal={"selector": {"kind": "pattern", "value": value}, "source": "/a", "destination": "/b", "manifest": f"/b/{name}"},
    )


TASKS = [make(".log", "manifest.json"), make(".txt", "manifest.json")]


def episode(task, sample, calls, **changes):
    environment = WorkspaceEnvironment()
    environment.reset(task)
    for name, args in calls:
        environment.step(name, args)
    turns = [{"start": 1, "end": 3, "calls": 1, "malformed": 1, "policy_version": 0}]
    values = {
        "id": f"{task.id}-{sample}", "task_id": task.id, "group": task.id, "sample": sample, "seed": 0, "policy_version": 0,
        "temperature": 1.0, "token_ids": [5, 6, 7], "action_mask": [0, 1, 1], "logprobs": [0.0, -0.5, -0.25], "turns": turns,
        "final_state": environment.snapshot(), "messages": [], "stop_reason": "finished",
    }  # fmt: skip
    return Trajectory(**(values | changes))


@pytest.fixture
def trajectories(tmp_path):
    first, second = TASKS
    path = tmp_path / "trajectories.parquet"
    write_records(
        path,
        [
            episode(first, 0, solution(first)),
            episode(first, 1, solution(first)[:-2]),
            episode(second, 0, solution(second), stop_reason="infrastructure_failed", detail="engine gone"),
            episode(second, 1, solution(second), final_state={"no": "files"}),
        ],
    )
    return path


def test_each_trajectory_gets_its_status_and_total(trajectories, tmp_path):
    metrics = score(CONFIG, TASKS, trajectories, tmp_path / "out")
    scores = read_scores(tmp_path / "out" / "scores.parquet")
    assert [item.status for item in scores] == ["scored", "scored", "infrastructure_failed", "unscored"]
    assert [item.total for item in scores] == [1.0, 0.0, None, None]
    assert scores[1].breakdown["workspace.manifest"] == 0.0
    assert scores[1].breakdown["workspace.files_moved"] == 1.0
    assert "KeyError" in scores[3].detail
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == metrics
    assert (metrics["scored"], metrics["unscored"], metrics["infrastructure_failed"]) == (2, 1, 1)
    assert (metrics["reward"], metrics["success"]) == (0.5, 0.5), "what was not judged is not in the mean"


def test_pandas_reads_the_scores(trajectories, tmp_path):
    score(CONFIG, TASKS, trajectories, tmp_path / "out")
    table = pd.read_parquet(tmp_path / "out" / "scores.parquet")
    assert table["total"].dtype == "float64"
    assert table["total"].isna().tolist() == [False, False, True, True]


def test_another_rubric_rescores_the_same_trajectories(trajectories, tmp_path):
    before = trajectories.read_bytes()
    score(CONFIG, TASKS, trajectories, tmp_path / "plain")
    stricter = RetrainConfig.model_validate({"name": "test", "rubric": {"malformed_penalty": 0.25}})
    metrics = score(stricter, TASKS, trajectories, tmp_path / "strict")
    assert read_scores(tmp_path / "strict" / "scores.parquet")[0].total == 0.75
    assert metrics["success"] == 0.5
    assert trajectories.read_bytes() == before


def test_equal_inputs_give_equal_bytes(trajectories, tmp_path):
    for name in ("one", "two"):
        score(CONFIG, TASKS, trajectories, tmp_path / name)
    for file in ("scores.parquet", "metrics.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_metrics_are_none_when_nothing_is_scored(tmp_path):
    path = tmp_path / "trajectories.parquet"
    write_records(path, [episode(TASKS[0], 0, [], stop_reason="infrastructure_failed")])
    metrics = score(CONFIG, TASKS, path, tmp_path / "out")
    assert (metrics["reward"], metrics["success"]) == (None, None)
    table = pd.read_parquet(tmp_path / "out" / "scores.parquet")
    assert table["total"].dtype == "float64" and math.isnan(table["total"][0])


def test_unusable_input_is_a_data_error(trajectories, tmp_path):
    with pytest.raises(DataError, match="not among those given"):
        score(CONFIG, TASKS[:1], trajectories, tmp_path / "out")
    with pytest.raises(DataError, match="no such file"):
        score(CONFIG, TASKS, tmp_path / "absent.parquet", tmp_path / "out")
    garbage = tmp_path / "garbage.parquet"
    garbage.write_text("not parquet")
    with pytest.raises(DataError, match="not a Parquet file"):
        score(CONFIG, TASKS, garbage, tmp_path / "out")
    pd.read_parquet(trajectories).drop(columns=["final_state"]).to_parquet(garbage)
    with pytest.raises(DataError, match="final_state"):
        score(CONFIG, TASKS, garbage, tmp_path / "out")


class HangsOnOne:
    """A verifier that never answers for the first task."""

    kind = f"{__name__}:HangsOnOne"
    go_on = threading.Event()

    def verify(self, task, final_state):
        if task.id == TASKS[0].id:
            self.go_on.wait()
        return 1.0, {}


def test_a_verifier_that_hangs_leaves_only_its_trajectory_unscored(tmp_path):
    path = tmp_path / "trajectories.parquet"
    write_records(path, [episode(TASKS[0], 0, []), episode(TASKS[1], 0, []), episode(TASKS[1], 1, [])])
    rubric = {"verifiers": [{"kind": HangsOnOne.kind}], "verifier_seconds": 2.0}
    metrics = score(RetrainConfig(name="test", rubric=rubric), TASKS, path, tmp_path)
    HangsOnOne.go_on.set()
    found = read_scores(tmp_path / "scores.parquet")
    assert [item.status for item in found] == ["unscored", "scored", "scored"]
    assert found[0].detail == "verifier: over 2 s (rubric.verifier_seconds)" and found[0].total is None
    assert (metrics["unscored"], metrics["reward"]) == (1, 1.0)


def test_scores_name_the_environment_where_tasks_are_of_several(tmp_path, trajectories):
    """The learner's domains; files of one environment stay as they were."""
    score(CONFIG, TASKS, trajectories, tmp_path / "one")
    assert "environment" not in pd.read_parquet(tmp_path / "one" / "scores.parquet")
    other = replace(TASKS[1], environment='{"args":{"seed":1},"kind":"order_desk"}')
    score(CONFIG, [TASKS[0], other], trajectories, tmp_path / "two")
    found = read_scored_trajectories([trajectories], [tmp_path / "two" / "scores.parquet"])
    assert found["environment"].tolist() == ["workspace", "workspace", "order_desk", "order_desk"]
