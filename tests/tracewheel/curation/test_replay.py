"""Replay checks the logged success against the effects of the calls."""

import dataclasses
import json
import math
import random

import pandas
import pytest

from tests.replaying import replay_traces
from tracewheel.core.errors import DataError
from tracewheel.core.types import Trace
from tracewheel.curation.replay import no_op_problem, replay_trace
from tracewheel.environments.workspace.agent import manifest_call, move_call, solution
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import FAMILIES, make_task, workspace_task


def trace_of(task, calls=None, **changes):
    values = {
        "id": "t",
        "messages": play(task, solution(task) if calls is None else calls),
        "tools": TOOLS,
        "environment": {"kind": "workspace", "initial_state": task.initial_state, "goal": task.goal},
        "session": None,
        "user": None,
        "created": None,
        "model": None,
        "outcome": None,
        "source_file": "log.jsonl",
        "source_line": 1,
    }
    return Trace(**{**values, **changes})


@pytest.fixture
def task():
    return make_task("prefix", 3, random.Random(1))


@pytest.mark.parametrize("family", FAMILIES)
def test_success_is_the_verifiers_score_of_the_replayed_calls(family):
    task = make_task(family, 3, random.Random(2))
    good = replay_trace(trace_of(task), WorkspaceEnvironment())
    assert (good.task, good.success, good.ended, good.observation_drift) == (task, 1.0, True, False)
    bad = replay_trace(trace_of(task, [call for call in solution(task) if call[0] != "write_file"]), WorkspaceEnvironment())
    assert bad.success == 0.0
    assert bad.breakdown == {"files_moved": 1.0, "manifest": 0.0, "untouched": 1.0}


def test_the_logged_reward_is_never_trusted(task):
    lies = [trace_of(task, id="a", outcome=0.0), trace_of(task, [("finish", {})], id="b", outcome=1.0)]
    truths = [trace_of(task, id="c", outcome=1.0), trace_of(task, id="d")]
    frame, tasks = replay_traces(pandas.DataFrame([trace.to_record() for trace in lies + truths]), "workspace")
    assert frame["success"].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert frame["reward_drift"].tolist() == [True, True, False, False]
    assert not frame["observation_drift"].any()
    assert list(tasks) == [task.id]


def test_a_reply_that_differs_from_the_log_leaves_the_episode_unscored(task):
    messages = play(task, solution(task))
    messages[3] = {**messages[3], "content": "another world"}
    replay = replay_trace(trace_of(task, messages=messages), WorkspaceEnvironment())
    assert replay.success is None
    assert replay.observation_drift
    frame, _ = replay_traces(pandas.DataFrame([trace_of(task, messages=messages, outcome=1.0).to_record()]), "workspace")
    assert math.isnan(frame["success"][0])
    assert not frame["reward_drift"][0]
    assert "otherwise" in frame["unscored"][0]


def test_several_calls_in_a_turn_are_played_in_order(task):
    calls = solution(task)
    turns = play(task, calls)
    merged = {"role": "assistant", "content": None, "tool_calls": [turns[index]["tool_calls"][0] for index in (2, 4)]}
    messages = [*turns[:2], merged, turns[3], turns[5], *turns[6:]]
    assert replay_trace(trace_of(task, messages=messages), WorkspaceEnvironment()).success == 1.0


def test_nothing_after_the_end_of_the_episode_counts(task):
    messages = play(task, [("finish", {})])
    late = play(task, solution(task))[2:]
    assert replay_trace(trace_of(task, messages=[*messages, *late]), WorkspaceEnvironment()).success == 0.0


def test_an_episode_without_finish_is_scored_but_has_not_ended(task):
    replay = replay_trace(trace_of(task, solution(task)[:-1]), WorkspaceEnvironment())
    assert (replay.success, replay.ended) == (1.0, False)


def test_the_prompt_is_the_first_user_message_unless_the_log_names_one(task):
    named = {"kind": "workspace", "initial_state": task.initial_state, "goal": task.goal, "prompt": "Other words."}
    replay = replay_trace(trace_of(task, environment=named), WorkspaceEnvironment())
    assert replay.task.prompt == "Other words."
    assert replay.task.fingerprint == task.fingerprint


def test_a_verifier_that_cannot_judge_leaves_the_episode_unscored(task, monkeypatch):
    class Fails:
        def verify(self, task, final_state):
            raise KeyError("files")

    monkeypatch.setattr("tracewheel.curation.replay.make_verifier", lambda kind: Fails())
    replay = replay_trace(trace_of(task), WorkspaceEnvironment())
    assert replay.success is None
    assert "KeyError" in replay.unscored


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"environment": None}, "no environment logged"),
        ({"environment": {"kind": "browser"}}, "another environment"),
        ({"environment": {"kind": "os:system"}}, "another environment"),
        ({"environment": {"kind": "workspace"}}, "initial_state"),
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, "no prompt"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_dropped_with_its_reason(task, changes, reason):
    trace = trace_of(task, **changes)
    with pytest.raises(DataError, match=reason):
        replay_trace(trace, WorkspaceEnvironment())
    frame, tasks = replay_traces(pandas.DataFrame([trace.to_record()]), "workspace")
    assert reason in frame["dropped"][0]
    assert tasks == {}


def test_tasks_solved_by_doing_nothing_are_found(task):
    assert no_op_problem(task, WorkspaceEnvironment()) == ""
    nothing_to_do = {"folders": task.initial_state["folders"], "files": {task.goal["manifest"]: "[]"}}
    hollow = workspace_task(task.prompt, nothing_to_do, task.goal)
    assert no_op_problem(hollow, WorkspaceEnvironment()) == "solved by doing nothing"


def test_tasks_that_cannot_be_judged_are_found(task):
    unclear = dataclasses.replace(task, goal={"selector": {"kind": "colour", "value": "red"}, "source": "", "destination": ""})
    assert "cannot judge" in no_op_problem(unclear, WorkspaceEnvironment())


def test_replay_gives_one_row_for_each_trace_in_order(task):
    first = play(task, [move_call("/nowhere", "x", "/nowhere"), manifest_call(task, []), ("finish", {})])
    traces = [trace_of(task, id="a", environment=None), trace_of(task, id="b"), trace_of(task, id="c", messages=first)]
    frame, _ = replay_traces(pandas.DataFrame([trace.to_record() for trace in traces]), "workspace")
    assert frame["id"].tolist() == ["a", "b", "c"]
    assert [value == 1.0 for value in frame["success"]] == [False, True, False]
    assert json.loads(frame["breakdown"][1]) == {"files_moved": 1.0, "manifest": 1.0, "untouched": 1.0}


def broken(reply):
    """A call with broken arguments, and the reply to it."""
    call = {"id": "broken", "type": "function", "function": {"name": "move_file", "arguments": '{"source": "/'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [asked, {"role": "tool", "tool_call_id": "broken", "content": reply}]


@pytest.mark.parametrize(
    "reply", ["error: invalid JSON", '{"error": "bad"}', "Could not parse the arguments.", "JSONDecodeError"]
)
def test_a_call_with_broken_arguments_is_replayed_as_the_failure_that_it_was(task, reply):
    good = trace_of(task)
    recovered = replay_trace(
        trace_of(task, messages=[*good.messages[:2], *broken(reply), *good.messages[2:]]), WorkspaceEnvironment()
    )
    assert (recovered.success, recovered.observation_drift) == (1.0, False)


def test_broken_arguments_that_the_logs_tool_carried_out_are_no_evidence(task):
    good = trace_of(task)
    replay = replay_trace(
        trace_of(task, messages=[*good.messages[:2], *broken("a.txt"), *good.messages[2:]]), WorkspaceEnvironment()
    )
    assert (replay.success, replay.observation_drift) == (None, True)


def test_what_the_agent_says_before_the_user_is_context(task):
    good = trace_of(task)
    messages = [good.messages[0], {"role": "assistant", "content": "Hello!"}, *good.messages[1:]]
    replay = replay_trace(trace_of(task, messages=messages), WorkspaceEnvironment())
    assert (replay.task, replay.success, replay.opening) == (task, 1.0, 2)
