"""The workspace: tools, errors, and independence of episodes."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.environments import make_environment
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import EMPTY_FOLDER, TOOLS, WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import FAMILIES, make_task, workspace_task
from tracewheel.scoring.verifiers import make_verifier

STATE = {
    "folders": ["", "/inbox", "/archive"],
    "files": {"/inbox/a.log": "paid", "/inbox/b.txt": "void", "/archive/b.txt": "old"},
}
GOAL = {
    "selector": {"kind": "pattern", "value": ".log"},
    "source": "/inbox",
    "destination": "/archive",
    "manifest": "/archive/manifest.json",
}


@pytest.fixture
def workspace():
    environment = WorkspaceEnvironment()
    environment.reset(workspace_task("tidy up", STATE, GOAL))
    return environment


def test_list_read_move_write_finish(workspace):
    assert workspace.step("list_files", {"path": "/inbox"}).text == "a.log\nb.txt"
    assert workspace.step("list_files", {"path": "/inbox/"}).text == "a.log\nb.txt"
    assert workspace.step("read_file", {"path": "/inbox/a.log"}).text == "paid"
    assert workspace.step("move_file", {"source": "/inbox/a.log", "destination": "/archive"}).text == "b.txt"
    assert workspace.step("write_file", {"path": "/archive/manifest.json", "content": '["a.log"]'}).text == "ok"
    done = workspace.step("finish", {})
    assert done.done
    assert workspace.snapshot() == {
        "folders": ["", "/archive", "/inbox"],
        "files": {
            "/archive/a.log": "paid",
            "/archive/b.txt": "old",
            "/archive/manifest.json": '["a.log"]',
            "/inbox/b.txt": "void",
        },
        "finished": True,
    }


def test_an_empty_folder_is_listed_as_empty(workspace):
    workspace.step("move_file", {"source": "/inbox/a.log", "destination": "/archive"})
    workspace.step("write_file", {"path": "/list.txt", "content": ""})
    workspace.step("move_file", {"source": "/inbox/b.txt", "destination": ""})
    assert workspace.step("list_files", {"path": "/inbox"}).text == EMPTY_FOLDER


@pytest.mark.parametrize(
    ("tool", "args", "reply"),
    [
        ("search_files", {"path": "/inbox"}, "error: no tool named search_files"),
        ("_move_file", {"source": "/inbox/a.log", "destination": "/archive"}, "error: no tool named _move_file"),
        ("list_files", {}, "error: arguments must be path"),
        ("list_files", {"path": "/inbox", "all": "yes"}, "error: arguments must be path"),
        ("finish", {"now": "yes"}, "error: arguments must be none"),
        ("list_files", {"path": ["/inbox"]}, "error: arguments must be strings"),
        ("list_files", {"path": "/nowhere"}, "error: no such folder /nowhere"),
        ("read_file", {"path": "a.log"}, "error: no such file a.log"),
        ("move_file", {"source": "/inbox/c.log", "destination": "/archive"}, "error: no such file /inbox/c.log"),
        ("move_file", {"source": "/inbox/a.log", "destination": "/nowhere"}, "error: no such folder /nowhere"),
        ("move_file", {"source": "/inbox/b.txt", "destination": "/archive"}, "error: a file is already at /archive/b.txt"),
        ("write_file", {"path": "/nowhere/x", "content": ""}, "error: no such folder /nowhere/x"),
        ("write_file", {"path": "/inbox/", "content": ""}, "error: no such folder /inbox/"),
    ],
)
def test_failed_calls_give_an_error_and_change_nothing(workspace, tool, args, reply):
    before = workspace.snapshot()
    observation = workspace.step(tool, args)
    assert (observation.text, observation.error, observation.done) == (reply, True, False)
    assert workspace.snapshot() == before


names = st.sampled_from([tool["function"]["name"] for tool in TOOLS]) | st.text(max_size=12)
values = st.sampled_from(["/inbox", "/inbox/a.log", "/archive", "", "/"]) | st.text(max_size=8) | st.none() | st.integers()
arguments = st.dictionaries(st.sampled_from(["path", "source", "destination", "content", "x"]), values, max_size=3)


@settings(deadline=None)
@given(st.lists(st.tuples(names, arguments), max_size=12))
def test_no_call_raises_and_every_snapshot_is_json(calls):
    environment = WorkspaceEnvironment()
    environment.reset(workspace_task("tidy up", STATE, GOAL))
    for tool, args in calls:
        assert isinstance(environment.step(tool, args).text, str)
    state = environment.snapshot()
    assert json.loads(json.dumps(state)) == state


def test_a_snapshot_is_a_copy(workspace):
    before = workspace.snapshot()
    before["files"]["/inbox/new"] = "x"
    before["folders"].clear()
    assert "/inbox/new" not in workspace.snapshot()["files"]
    assert workspace.snapshot()["folders"]


def test_a_reset_does_not_change_the_task(workspace):
    task = workspace_task("tidy up", STATE, GOAL)
    workspace.reset(task)
    workspace.step("write_file", {"path": "/inbox/new", "content": "x"})
    assert "/inbox/new" not in task.initial_state["files"]
    workspace.reset(task)
    assert "/inbox/new" not in workspace.snapshot()["files"]


def _reward(environment, task, calls):
    environment.reset(task)
    for tool, args in calls:
        environment.step(tool, args)
    return make_verifier(task.verifier).verify(task, environment.snapshot())[0]


def test_rewards_do_not_depend_on_the_order_of_rollouts_or_on_their_interleaving():
    rng = random.Random(3)
    tasks = [make_task(family, tier, rng) for family in FAMILIES for tier in (2, 4)]
    rollouts = [(task, solution(task)[: rng.choice((-1, -2, None))]) for task in tasks for _ in range(3)]
    fresh = [_reward(WorkspaceEnvironment(), *rollout) for rollout in rollouts]
    assert 0.0 in fresh
    assert 1.0 in fresh

    order = list(range(len(rollouts)))
    rng.shuffle(order)
    shared = WorkspaceEnvironment()
    one_after_another = {index: _reward(shared, *rollouts[index]) for index in order}
    assert [one_after_another[index] for index in range(len(rollouts))] == fresh

    environments = [WorkspaceEnvironment() for _ in rollouts]
    for environment, (task, _) in zip(environments, rollouts, strict=True):
        environment.reset(task)
    for step in range(max(len(calls) for _, calls in rollouts)):
        for environment, (_, calls) in zip(environments, rollouts, strict=True):
            if step < len(calls):
                environment.step(*calls[step])
    interleaved = [
        make_verifier("workspace").verify(task, environment.snapshot())[0]
        for environment, (task, _) in zip(environments, rollouts, strict=True)
    ]
    assert interleaved == fresh


def test_tool_schemas_are_json_schema_objects():
    for tool in TOOLS:
        parameters = tool["function"]["parameters"]
        assert tool["type"] == "function"
        assert parameters["type"] == "object"
        assert set(parameters["required"]) == set(parameters["properties"])


def test_make_environment_by_built_in_name_and_by_class():
    assert make_environment("workspace").kind == "workspace"
    give(name := "tracewheel.environments.workspace.environment:WorkspaceEnvironment")
    own = make_environment(name)
    assert isinstance(own, WorkspaceEnvironment)
    with pytest.raises(ConfigError, match="no environment is called 'nowhere'"):
        make_environment("nowhere")


def test_a_task_from_a_log_is_the_task_itself():
    task = make_task("list", 3, random.Random(1))
    logged = {"kind": "workspace", "initial_state": task.initial_state, "goal": task.goal}
    assert WorkspaceEnvironment().task_from_log(task.prompt, logged) == task


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda log: log.pop("initial_state"), "initial_state"),
        (lambda log: log["initial_state"].pop("folders"), "initial_state"),
        (lambda log: log["initial_state"]["files"].update({"/inbox/x": 3}), "initial_state"),
        (lambda log: log.pop("goal"), "goal"),
        (lambda log: log["goal"].pop("manifest"), "manifest"),
        (lambda log: log["goal"].update(selector=None), "selector"),
        (lambda log: log["goal"]["selector"].update(kind="colour"), "pattern, prefix, list, content"),
        (lambda log: log["goal"]["selector"].update(kind=["list"]), "selector"),
        (lambda log: log["goal"]["selector"].update(kind="list", value="/none.txt"), "/none.txt"),
    ],
)
def test_an_inconsistent_log_is_an_error_with_the_reason(spoil, message):
    logged = json.loads(json.dumps({"kind": "workspace", "initial_state": STATE, "goal": GOAL}))
    spoil(logged)
    with pytest.raises(DataError, match=message):
        WorkspaceEnvironment().task_from_log("tidy up", logged)


LOSES_HALF = '{"args":{"lost_moves":0.5},"kind":"workspace"}'


def drawn(count, seed=0):
    rng = random.Random(seed)
    return [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2, 3, 4, 5) for _ in range(count)]


def test_a_lost_move_changes_nothing_and_the_reply_lists_what_is_there():
    environment = make_environment(LOSES_HALF)
    moves = lost = 0
    for task in drawn(5):
        environment.reset(task)
        for name, args in solution(task):
            before = environment.snapshot()["files"]
            said = environment.step(name, args)
            if name == "move_file":
                moves += 1
                lost += environment.snapshot()["files"] == before
                origin = args["source"].rsplit("/", 1)[0]
                assert said == environment.step("list_files", {"path": origin}), "an error would tell it apart"
        assert environment.snapshot()["moves"] == task.tier
    assert lost / moves == pytest.approx(0.5, abs=4 * (0.25 / moves) ** 0.5)


def test_which_moves_are_lost_is_the_task_s_and_a_snapshot_goes_on():
    first, second = make_environment(LOSES_HALF), make_environment(LOSES_HALF)
    for task in drawn(2):
        first.reset(task)
        calls = first.solution(task)
        states = []
        for name, args in calls:
            first.step(name, args)
            states.append(first.snapshot())
        for cut, state in enumerate(states, start=1):
            second.restore(task, json.loads(json.dumps(state)))
            for name, args in calls[cut:]:
                second.step(name, args)
            assert second.snapshot() == states[-1]
    with pytest.raises(DataError, match="'moves', a number"):
        second.restore(task, {key: value for key, value in state.items() if key != "moves"})


def test_the_solution_makes_lost_moves_again():
    environment = make_environment(LOSES_HALF)
    tasks = drawn(2)
    for task in tasks:
        environment.reset(task)
        for name, args in environment.solution(task):
            assert not environment.step(name, args).error
        assert make_verifier(task.verifier).verify(task, environment.snapshot())[0] == 1.0
    assert sum(len(environment.solution(task)) > len(solution(task)) for task in tasks) > len(tasks) / 2


@pytest.mark.parametrize(
    ("name", "value"), [("lost_moves", 1.0), ("lost_moves", -0.1), ("lost_moves", "x"), ("noise_seed", 0.5)]
)
def test_a_wrong_argument_is_named(name, value):
    with pytest.raises(ConfigError, match=rf"environment 'workspace': args.{name}: {re.escape(repr(value))} is no"):
        make_environment(kind_text("workspace", {name: value}))


def test_a_workspace_loses_nothing_by_default(workspace):
    assert "moves" not in workspace.snapshot()
    for task in drawn(1):
        assert workspace.solution(task) == list(solution(task))
