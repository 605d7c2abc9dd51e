"""Rows of episodes, worked out by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from tracewheel.report.doctor.episode_rows import episode_rows, repeated_share
from tracewheel.scoring.flaws import longest_loop


@pytest.mark.parametrize(
    ("steps", "times"),
    [
        ([], 0),
        (["a"], 1),
        (["a", "b", "a"], 1),
        (["a", "a"], 2),
        (["b", "a", "a", "a", "c"], 3),
        (["a", "b", "a", "b"], 2),
        (["a", "b", "a", "b", "a"], 2),
        (["a", "b", "c"] * 3, 3),
        (["a", "b", "c", "d"] * 3, 1),
    ],
)
def test_longest_loop(steps, times):
    assert longest_loop(steps) == times


def test_repeated_share():
    assert repeated_share(np.arange(50)) == 0.0
    assert repeated_share(np.array([1, 2] * 20)) == 1 - 2 / 37  # 37 phrases, two of them distinct
    assert repeated_share(np.array([1, 2] * 5)) == 0.0  # too short to say


def row(**changes):
    """Prompt 0-2, a turn 3-5 that ends with 9, an observation 6-7, a turn 8-9 that ends with 9."""
    call = {"id": "call-1-0", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    values = {
        "id": "t", "task_id": "k", "group": "k", "stop_reason": "no_tool_call", "policy_version": 4,
        "token_ids": np.array([1, 1, 1, 5, 6, 9, 2, 2, 7, 9]), "action_mask": np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1]),
        "logprobs": np.array([0, 0, 0, -1.0, -0.5, 0.0, 0, 0, -0.25, 0.0]),
        "turns": json.dumps([
            {"start": 3, "end": 6, "calls": 1, "malformed": 0, "policy_version": 3},
            {"start": 8, "end": 10, "calls": 0, "malformed": 0, "policy_version": 4},
        ]),
        "messages": json.dumps([
            {"role": "system", "content": "s"}, {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call-1-0", "content": "Error: nothing there"},
            {"role": "assistant", "content": "done"},
        ]),
    }  # fmt: skip
    return values | changes


def facts(score=None, tools=("look",), recorded=False, **changes):
    scores = pd.DataFrame([score] if score else [], columns=["trajectory_id", "status", "total", "breakdown", "turn_rewards"])
    return episode_rows(pd.DataFrame([row(**changes)]), scores, tools, 2, recorded=recorded).iloc[0]


def test_tokens_and_steps_of_an_episode():
    one = facts()
    assert (one["tokens"], one["action_tokens"], one["turn_tokens"], one["outside_turns"], one["past_the_end"]) == (
        10,
        5,
        5,
        0,
        0,
    )
    assert one["negative_logprob"] == 1.75
    assert (one["oldest_version"], one["newest_version"]) == (3, 4)
    assert (one["turns"], one["calls"], one["named_calls"], one["errors"], one["loop"]) == (2, 1, 1, 1, 1)
    assert one["unknown_tools"] == []


def test_an_earlier_conversation_does_not_count():
    """Other tools, errors and a loop, and a call with the id of one of the episode's own."""
    earlier = [{"role": "user", "content": "before"}]
    for _ in range(3):
        call = {"id": "call-1-0", "type": "function", "function": {"name": "shout", "arguments": "{}"}}
        earlier.append({"role": "assistant", "content": None, "tool_calls": [call]})
        earlier.append({"role": "tool", "tool_call_id": "call-1-0", "content": "fine"})
    own = json.loads(row()["messages"])
    opened = facts(messages=json.dumps([own[0], *earlier, {"role": "assistant", "content": "so"}, *own[1:]]))
    steps = ["turns", "calls", "malformed", "named_calls", "unknown_tools", "errors", "loop"]
    assert opened[steps].tolist() == facts()[steps].tolist() == [2, 1, 0, 1, [], 1, 1]


def test_an_episode_without_turns_has_no_steps():
    silent = facts(turns="[]", stop_reason="max_tokens")
    assert (silent["turns"], silent["named_calls"], silent["errors"], silent["loop"]) == (0, 0, 0, 0)


def test_unrecorded_calls_are_read_only_for_recorded_environments():
    state = json.dumps({"task": "x", "calls": [], "unrecorded": [{"name": "look", "arguments": {}}]})
    assert facts(final_state=state, recorded=True)["unrecorded"] == ["look"]
    assert facts(final_state="{}", recorded=True)["unrecorded"] == []
    assert "unrecorded" not in facts(final_state=state)


def test_unknown_tools_need_a_list_of_offered_tools():
    assert facts(tools=("see",))["unknown_tools"] == ["look"]
    assert facts(tools=None)["unknown_tools"] == []


def test_masked_observation_tokens_are_counted():
    wide = facts(action_mask=np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 1]))
    assert (wide["outside_turns"], wide["past_the_end"], wide["turn_tokens"]) == (2, 1, 5)


def test_forced_tokens_are_not_a_fault():
    forced = facts(action_mask=np.array([0, 0, 0, 0, 1, 1, 0, 0, 1, 1]))
    assert (forced["outside_turns"], forced["past_the_end"], forced["turn_tokens"]) == (0, 0, 4)


def test_marks_of_a_score():
    marks = {
        "judge": 1.0,
        "judge.part": 0.0,
        "a.b:Second": 0.25,
        "success": 1.0,
        "objective.cost": 0.1,
        "malformed_penalty": 0.0,
    }
    score = {
        "trajectory_id": "t", "status": "scored", "total": 0.5, "breakdown": json.dumps(marks),
        "turn_rewards": [0.5, -0.25, 0.25, -0.1],
    }  # fmt: skip
    one = facts(score)
    assert (one["total"], one["success"], one["negative_rewards"]) == (0.5, 1.0, 1)
    assert {name: value for name, value in one.items() if name.startswith("grader ")} == {
        "grader judge": 1.0,
        "grader a.b:Second": 0.25,
    }


def test_unscored_is_not_0():
    failed = {"trajectory_id": "t", "status": "unscored", "total": None, "breakdown": "{}", "turn_rewards": None}
    for one in (facts(), facts(failed)):
        assert np.isnan(one["total"]) and np.isnan(one["success"])
