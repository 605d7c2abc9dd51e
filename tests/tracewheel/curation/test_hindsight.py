"""Hindsight: which failed episodes become demonstrations of the goals they reached."""

import json

import pandas as pd
import pytest

from tracewheel.curation.hindsight import hindsight_episodes
from tracewheel.environments.workspace.agent import manifest_call, move_call
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import selected_files, workspace_task

FINISH = ("finish", {})


@pytest.fixture
def task(tasks):
    """A task to move two files by a pattern."""
    return next(task for task in tasks if task.family == "pattern" and task.tier == 2)


@pytest.fixture
def partly(task):
    """The calls that do only half of it, properly."""
    name = selected_files(task.initial_state, task.goal)[0]
    look = ("list_files", {"path": task.goal["source"]})
    return [look, move_call(task.goal["source"], name, task.goal["destination"]), manifest_call(task, [name]), FINISH]


def episodes(task, calls, success=0.0, messages=None):
    row = {
        "trace_id": "trace-1",
        "task_id": task.id,
        "split": "train",
        "success": success,
        "failure": "stopped_early",
        "messages": json.dumps(play(task, calls) if messages is None else messages),
        "tools": json.dumps(TOOLS),
    }
    return pd.DataFrame([row])


def relabelled(task, calls, taken=(), **options):
    return hindsight_episodes(episodes(task, calls, **options), {task.id: task}, taken).to_dict("records")


def test_only_the_words_of_the_user_change(task, partly):
    (row,) = relabelled(task, partly)
    before, after = play(task, partly), json.loads(row["messages"])
    assert row["trace_id"] == "trace-1-hindsight" and row["success"] == 1.0 and row["failure"] == ""
    assert row["task_id"] != task.id
    assert after[1] == {"role": "user", "content": after[1]["content"]} != before[1]
    assert selected_files(task.initial_state, task.goal)[0] in after[1]["content"]
    assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]
    assert json.loads(row["tools"]) == TOOLS


@pytest.mark.parametrize("success", [1.0, float("nan")])
def test_only_failures_are_relabelled(task, partly, success):
    assert relabelled(task, partly, success=success) == []


def test_held_out_tasks_are_not_relabelled_to(task, partly):
    environment = WorkspaceEnvironment()
    environment.reset(task)
    for name, arguments in partly:
        environment.step(name, arguments)
    reached = environment.task_reached(task, environment.snapshot())
    assert relabelled(task, partly, taken={"another"}) != []
    assert relabelled(task, partly, taken={reached.fingerprint}) == []


def test_episodes_with_invalid_or_repeated_calls_are_left_out(task, partly):
    assert relabelled(task, [("tidy_up", {}), *partly]) == []
    assert relabelled(task, [partly[0], *partly]) == []


def test_unfinished_episodes_are_left_out(task, partly):
    assert relabelled(task, partly[:-1]) == []


def test_episodes_with_other_replies_are_left_out(task, partly):
    messages = play(task, partly)
    messages[3]["content"] = "something else"
    assert relabelled(task, partly, messages=messages) == []


def test_environments_without_goals_give_none(task, partly, monkeypatch):
    """As one whose tasks have fixed answers."""

    class FixedAnswers:
        kind, system_prompt = "workspace", "You answer."

        def __getattr__(self, name):
            if name == "task_reached":
                raise AttributeError(name)
            return getattr(WorkspaceEnvironment(), name)

    monkeypatch.setattr("tracewheel.environments.make_environment", lambda kind: FixedAnswers())
    assert relabelled(task, partly) == []


def test_reached_goals_are_verified(task, partly, tasks, monkeypatch):
    """It names the task that was failed, or one from the same start that was not solved either."""
    manifest = task.goal | {"manifest": task.goal["destination"] + "/other.json"}
    unsolved = workspace_task(task.prompt, task.initial_state, manifest)

    class Liar(WorkspaceEnvironment):
        def task_reached(self, task, final_state):
            return claims.pop()

    monkeypatch.setattr("tracewheel.environments.make_environment", lambda kind: Liar())
    claims = [task, unsolved]
    assert relabelled(task, partly) == relabelled(task, partly) == claims == []
