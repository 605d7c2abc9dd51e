"""The task that a final state of the workspace solves, on hand-made states."""

import json

import pytest

from tracewheel.environments import GoalFinder, make_environment
from tracewheel.environments.workspace.environment import task_reached
from tracewheel.environments.workspace.tasks import FAMILIES, selected_files, workspace_task
from tracewheel.scoring.verifiers import make_verifier

FILES = {
    "/inbox/inv1.log": "paid",
    "/inbox/inv2.csv": "urgent",
    "/inbox/ord3.csv": "urgent",
    "/inbox/tax4.log": "void",
    "/list.txt": "inv1.log\ninv2.csv",
}


def make(
    kind="pattern",
    value=".log",
    wording="Move all files matching *{} from /inbox to /done, then write /done/manifest.json listing them.",
):
    goal = {"selector": {"kind": kind, "value": value}, "source": "/inbox", "destination": "/done"}
    state = {"folders": ["", "/done", "/inbox"], "files": dict(FILES)}
    return workspace_task(wording.format(value), state, goal | {"manifest": "/done/manifest.json"})


def state_after(*names, to="/done", manifest="/done/manifest.json", listed=None, finished=True, **other):
    files = {path: text for path, text in FILES.items() if path.removeprefix("/inbox/") not in names}
    files |= {f"{to}/{name}": FILES[f"/inbox/{name}"] for name in names}
    files |= {manifest: json.dumps(sorted(names) if listed is None else listed)}
    return {"folders": ["", "/done", "/inbox"], "files": files | other, "finished": finished}


def test_another_value_of_the_same_selector():
    reached = task_reached(make(), state_after("inv2.csv", "ord3.csv"))
    assert reached.goal["selector"] == {"kind": "pattern", "value": ".csv"}
    assert reached.prompt == "Move all files matching *.csv from /inbox to /done, then write /done/manifest.json listing them."
    assert (reached.family, reached.tier) == ("pattern", 2)


def test_the_prompt_keeps_the_wording_of_the_task():
    wording = "Please take every *{} file in /inbox over to /done and record them in /done/manifest.json."
    assert task_reached(make(wording=wording), state_after("inv2.csv", "ord3.csv")).prompt == wording.format(".csv")
    named = task_reached(make(wording=wording), state_after("inv1.log"))
    assert named.prompt == "Please take inv1.log in /inbox over to /done and record them in /done/manifest.json."


def test_files_that_no_selector_picks_are_listed_by_name():
    reached = task_reached(make(), state_after("tax4.log", "inv2.csv"))
    assert reached.goal["selector"] == {"kind": "names", "value": "inv2.csv, tax4.log"}
    assert (
        reached.prompt == "Move the files inv2.csv, tax4.log from /inbox to /done, then write /done/manifest.json listing them."
    )
    assert selected_files(reached.initial_state, reached.goal) == ["inv2.csv", "tax4.log"]
    assert reached.tier == 2


def test_another_family_is_not_considered():
    """Both files contain "urgent", but the episode read none, so the goal is not by content."""
    assert task_reached(make("prefix", "inv"), state_after("inv2.csv", "ord3.csv")).family == "names"
    assert task_reached(make("content", "paid"), state_after("inv2.csv", "ord3.csv")).goal["selector"]["value"] == "urgent"


def test_another_destination_and_manifest():
    reached = task_reached(make(), state_after("inv1.log", "tax4.log", to="", manifest="/inbox/all.json"))
    assert reached.goal == {
        "selector": {"kind": "pattern", "value": ".log"},
        "source": "/inbox",
        "destination": "",
        "manifest": "/inbox/all.json",
    }


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(state_after("inv1.log", "tax4.log"), id="what was asked for"),
        pytest.param(state_after("inv1.log", finished=False), id="not finished"),
        pytest.param(state_after(), id="nothing moved"),
        pytest.param(state_after("inv1.log", listed=["inv1.log", "tax4.log"]), id="the manifest lists others"),
        pytest.param(state_after("inv1.log", listed={"a": 1}), id="the manifest is no list"),
        pytest.param(state_after("inv1.log", manifest="/list.txt"), id="the manifest is over a file"),
        pytest.param(state_after("inv1.log", **{"/done/more.txt": "x"}), id="a file too many"),
        pytest.param(state_after("inv1.log", **{"/list.txt": "x"}), id="another file changed"),
        pytest.param(state_after("inv1.log", **{"/done/inv1.log": "x"}), id="a moved file changed"),
    ],
)
def test_states_that_solve_no_task(state):
    assert task_reached(make(), state) is None


def test_the_verifier_accepts_the_task_reached(tasks):
    """For every family, with some of the files moved."""
    environment, verifier = make_environment("workspace"), make_verifier("workspace")
    assert isinstance(environment, GoalFinder)
    seen = set()
    for task in tasks:
        names = selected_files(task.initial_state, task.goal)[:1]
        environment.reset(task)
        for name in names:
            environment.step("move_file", {"source": f"{task.goal['source']}/{name}", "destination": task.goal["destination"]})
        environment.step("write_file", {"path": task.goal["manifest"], "content": json.dumps(names)})
        environment.step("finish", {})
        reached = environment.task_reached(task, environment.snapshot())
        if task.tier == 1:
            assert reached is None, "it has done what was asked for"
            continue
        assert verifier.verify(reached, environment.snapshot())[0] == 1.0
        assert verifier.verify(task, environment.snapshot())[0] == 0.0
        seen.add(task.family)
    assert seen == set(FAMILIES)
