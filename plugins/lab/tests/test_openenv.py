"""OpenEnv's training traces: what goes where."""

from dataclasses import replace

import pytest

from tracewheel.core.errors import DataError
from tracewheel_lab.export.episode import Episode
from tracewheel_lab.export.openenv import write_episode


def test_each_turn_once_in_order(scored):
    trace = write_episode(scored)
    assert trace["schema_version"] == 1
    assert [turn["node_id"] for turn in trace["turns"]] == ["t1-0", "t1-1", "t1-2", "t1-3"]
    assert [turn["prompt_token_ids"] for turn in trace["turns"]] == [
        [100, 101, 102],
        list(range(100, 107)),
        [100, 101, 102, 103, 104, 110],
        [112],
    ]


def test_tokens_masks_and_log_probabilities(scored):
    turn = write_episode(scored)["turns"][1]
    assert turn["completion_token_ids"] == [107, 108, 109]
    assert turn["per_token_logps"] == [-0.07, -0.08, -0.09]
    assert turn["loss_mask"] == [0] * 7 + [1] * 3
    assert turn["request"]["messages"][-1]["content"] == "é.txt"
    assert turn["response"]["choices"][0]["finish_reason"] == "tool_calls"
    assert turn["metadata"] == {
        "index": 1, "session_id": "t1", "task_id": "task-7", "model": "tiny", "policy_version": 2,
        "version_changes": [[1, 3]], "forced_tokens": 1, "turn_reward": 0.0, "branch": 0, "agent": "main",
        "stop_reason": "finished", "reward_status": "scored", "n_tools": 1, "sampling_params": {"temperature": 0.7},
        "reward": 0.25,
    }  # fmt: skip


def test_nothing_is_learnt_from_an_episode_that_the_infrastructure_failed(branched):
    failed = replace(branched, stop_reason="infrastructure_failed", fault="tool", detail="it hung")
    turns = write_episode(Episode(failed))["turns"]
    assert not any(any(turn["loss_mask"]) for turn in turns)
    assert {(turn["metadata"]["fault"], turn["metadata"]["reward"]) for turn in turns} == {("tool", None)}


def test_only_a_turn_that_a_limit_cut_off_has_the_reason_length(branched):
    plain = replace(
        branched, branches=[], stop_reason="max_tokens", turns=branched.turns[:2], messages=branched.branches[0]["messages"]
    )

    def reasons(trajectory):
        return [turn["response"]["choices"][0]["finish_reason"] for turn in write_episode(Episode(trajectory))["turns"]]

    assert reasons(plain) == ["tool_calls", "tool_calls"]  # the observation had no room
    assert reasons(replace(plain, messages=plain.messages[:5])) == ["tool_calls", "length"]


def test_damage_is_named(branched):
    with pytest.raises(DataError, match="branch 2 has 1 turns and 0 assistant messages"):
        write_episode(Episode(replace(branched, branches=[*branched.branches[:2], {**branched.branches[2], "messages": []}])))
    with pytest.raises(DataError, match=r"trajectory t1: turn 0 is \[3, 99\) of 16 tokens"):
        write_episode(Episode(replace(branched, turns=[{**branched.turns[0], "end": 99}, *branched.turns[1:]])))
