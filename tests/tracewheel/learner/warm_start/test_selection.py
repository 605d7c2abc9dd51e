"""Which episodes a warm start imitates: of the logs, of a teacher, and in hindsight."""

import json

import pandas as pd
import pytest

from tracewheel.config import WarmStartConfig
from tracewheel.core.errors import DataError, LeakError
from tracewheel.core.types import Task
from tracewheel.environments.workspace.agent import manifest_call, move_call, solution
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import selected_files
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel.learner.warm_start.stage import warm_start


def half(task):
    """The calls that move one file of two, and list it."""
    name = selected_files(task.initial_state, task.goal)[0]
    moved = move_call(task.goal["source"], name, task.goal["destination"])
    return [("list_files", {"path": task.goal["source"]}), moved, manifest_call(task, [name]), ("finish", {})]


def row(number, task, split, success, calls):
    said = {"messages": json.dumps(play(task, calls)), "tools": json.dumps(TOOLS)}
    return {"trace_id": f"trace-{number}", "task_id": task.id, "split": split, "success": success, "failure": "", **said}


@pytest.fixture
def curated(tasks, tmp_path):
    """Six training and two held-out tasks, each with a good episode; those with two files also have a half solution."""
    splits = ["train"] * 6 + ["held_out"] * 2
    rows = []
    for task, split in zip(tasks, splits, strict=True):
        rows.append(row(len(rows), task, split, 1.0, solution(task)))
        if task.tier == 2:
            rows.append(row(len(rows), task, split, 0.0, half(task)))
    folder = tmp_path / "curated"
    folder.mkdir()
    pd.DataFrame(rows).to_parquet(folder / "episodes.parquet")
    records = [task.to_record() | {"split": split} for task, split in zip(tasks, splits, strict=True)]
    pd.DataFrame(records).to_parquet(folder / "tasks.parquet")
    return folder


@pytest.fixture
def lessons(tasks, tmp_path):
    """A teacher's folder with one success and one failure."""

    def write(*rows, name="lessons"):
        folder = tmp_path / name
        folder.mkdir()
        pd.DataFrame(rows).to_parquet(folder / "episodes.parquet")
        return str(folder)

    return write


def test_the_logged_training_episodes_are_the_default(curated):
    assert episodes_to_imitate(WarmStartConfig(), curated, "verified")["trace_id"].tolist() == [
        f"trace-{number}" for number in (0, 1, 3, 4, 6, 7)
    ]
    assert len(episodes_to_imitate(WarmStartConfig(), curated, "all")) == 9


@pytest.mark.parametrize(("accepted", "imitated"), [([], [0, 3, 4]), (["trace-1"], [0, 1, 3, 4])])
def test_an_episode_that_is_only_like_a_success_is_none_unless_curation_accepts_that(curated, accepted, imitated):
    """In a recorded environment nobody may have said how a conversation went that makes the same calls as a success."""
    rows = pd.read_parquet(curated / "episodes.parquet")
    rows = rows.assign(outcome_source="logged", solution=rows["trace_id"] == "trace-4")
    rows.loc[rows["trace_id"].isin(["trace-1", "trace-4", "trace-6", "trace-7"]), "outcome_source"] = "judged"
    rows.to_parquet(curated / "episodes.parquet")
    (curated / "sets").mkdir()
    pd.DataFrame({"trace_id": accepted}, dtype=str).to_parquet(curated / "sets/demonstrations.parquet")
    found = episodes_to_imitate(WarmStartConfig(), curated, "verified")["trace_id"].tolist()
    assert found == [f"trace-{number}" for number in imitated]


def test_a_teachers_successes_follow_the_logs(curated, lessons, tasks):
    folder = lessons(row("a", tasks[0], "train", 1.0, solution(tasks[0])), row("b", tasks[1], "train", 0.0, half(tasks[1])))
    episodes = episodes_to_imitate(WarmStartConfig(extra_demonstrations=(folder,)), curated, "verified")
    assert episodes["trace_id"].tolist()[5:] == ["trace-7", "trace-a"]


def test_a_teachers_held_out_episode_is_a_leak(curated, lessons, tasks):
    folder = lessons(row("a", tasks[7], "train", 1.0, solution(tasks[7])))
    with pytest.raises(LeakError, match=f"1 of its tasks are not in the training split, the first is {tasks[7].id}"):
        episodes_to_imitate(WarmStartConfig(extra_demonstrations=(folder,)), curated, "verified")


def test_a_folder_without_a_teachers_output_is_a_data_error(curated, lessons, tmp_path):
    with pytest.raises(DataError, match="absent/episodes.parquet: no such file"):
        episodes_to_imitate(WarmStartConfig(extra_demonstrations=(str(tmp_path / "absent"),)), curated, "verified")
    with pytest.raises(DataError, match="has no column messages.*`tracewheel teach`"):
        folder = lessons({"task_id": "x", "success": 1.0})
        episodes_to_imitate(WarmStartConfig(extra_demonstrations=(folder,)), curated, "verified")


def test_hindsight_adds_the_failures_of_the_training_split(curated):
    episodes = episodes_to_imitate(WarmStartConfig(hindsight=True), curated, "verified")
    assert episodes["trace_id"].tolist()[6:] == ["trace-2-hindsight", "trace-5-hindsight", "trace-8-hindsight"]
    assert set(episodes["success"]) == {1.0}


def test_hindsight_never_demonstrates_a_task_of_the_reserve(curated):
    found = episodes_to_imitate(WarmStartConfig(hindsight=True), curated, "verified")
    prompt = next(one["content"] for one in json.loads(found["messages"].iloc[-1]) if one["role"] == "user")
    tasks = pd.read_parquet(curated / "tasks.parquet").to_dict("records")
    (reached,) = [one for task in tasks if (one := reached_by_half(task)) and one.prompt == prompt]
    pd.DataFrame([reached.to_record() | {"split": "reserve"}]).to_parquet(curated / "reserve.parquet")
    left = episodes_to_imitate(WarmStartConfig(hindsight=True), curated, "verified")
    assert left["trace_id"].tolist() == found["trace_id"].tolist()[:-1]


def reached_by_half(record):
    """The task that the half solution of a task with two files solves."""
    task, environment = Task.from_record(record), WorkspaceEnvironment()
    if task.tier != 2:
        return None
    environment.reset(task)
    for name, arguments in half(task):
        environment.step(name, arguments)
    return environment.task_reached(task, environment.snapshot())


def test_the_warm_start_trains_on_all_sources(curated, lessons, tasks, config, tmp_path):
    """Also from a teacher alone, where no logged episode is any good."""
    table = pd.read_parquet(curated / "episodes.parquet")
    table.assign(success=0.0).iloc[2:].to_parquet(curated / "episodes.parquet")
    with pytest.raises(DataError, match="no verified episode"):
        warm_start(config, curated, tmp_path / "none", "verified")
    folder = lessons(*(row(f"t{number}", task, "train", 1.0, solution(task)) for number, task in enumerate(tasks[:6])))
    changes = {"extra_demonstrations": (folder,), "hindsight": True, "epochs": 1}
    changed = config.model_copy(update={"warm_start": config.warm_start.model_copy(update=changes)})
    metrics = warm_start(changed, curated, tmp_path, "verified")
    assert metrics["demonstrations"] == 6 + 3
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
