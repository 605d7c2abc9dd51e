"""ATIF: what goes where, and that our reader gives back what was written."""

import pytest

from tracewheel.core.types import Score
from tracewheel.traces.readers.reader import Place
from tracewheel_lab.export.atif import write_episode, write_trace
from tracewheel_lab.export.episode import Episode
from tracewheel_logs.atif import read, split

PLACE = Place("x.json", 1)


@pytest.fixture(scope="module")
def documents(scored, as_json):
    return as_json(write_episode(scored))


def test_each_history_of_the_main_agent_is_a_document_of_one_session(documents):
    assert [document["trajectory_id"] for document in documents] == ["t1", "t1-branch-1"]
    assert {document["session_id"] for document in documents} == {"t1"}
    assert {document["schema_version"] for document in documents} == {"ATIF-v1.8"}
    assert documents[1]["extra"]["branch"] == {"number": 1, "reason": "messages were removed", "agent": "main"}


def test_another_agent_is_a_sub_agent(documents):
    (helper,) = documents[0]["subagent_trajectories"]
    assert (helper["agent"]["name"], helper["trajectory_id"]) == ("helper", "t1-branch-2")
    assert helper["steps"][-1]["metrics"]["prompt_token_ids"] == [112]
    assert "subagent_trajectories" not in documents[1]


def test_tokens_of_a_turn_are_what_the_policy_read_and_sampled(documents):
    metrics = documents[0]["steps"][3]["metrics"]
    assert metrics["prompt_token_ids"] == list(range(100, 107))
    assert metrics["completion_token_ids"] == [107, 108, 109]
    assert metrics["logprobs"] == [-0.07, -0.08, -0.09]
    assert metrics["extra"] == {
        "policy_version": 2, "forced_tokens": 1, "malformed_calls": 1, "version_changes": [[1, 3]], "reward": 0.0,
    }  # fmt: skip
    assert documents[1]["steps"][-1]["metrics"]["prompt_token_ids"] == [100, 101, 102, 103, 104, 110]


def test_what_an_earlier_history_sampled_is_copied_context_and_has_no_tokens(documents):
    assert ["is_copied_context" in step for step in documents[0]["steps"]] == [False] * 4
    copied = [step.get("is_copied_context", False) for step in documents[1]["steps"]]
    assert copied == [True, True, True, False, False]
    assert ["metrics" in step for step in documents[1]["steps"]] == [False, False, False, False, True]


def test_results_stand_with_the_step_that_called(documents):
    step = documents[0]["steps"][3]
    assert [call["arguments"] for call in step["tool_calls"]] == [{"n": 2}, {}]
    assert [result["source_call_id"] for result in step["observation"]["results"]] == ["c2", "c3"]


def test_the_end_of_the_episode_is_in_extra(documents):
    extra = documents[0]["extra"]
    assert (extra["reward"], extra["stop_reason"], extra["task_id"]) == (0.25, "finished", "task-7")
    assert extra["seed"] == "9223372036854775809"
    assert extra["score_parts"] == {
        "status": "scored", "breakdown": {"moved": 0.5}, "answer": "Done.", "explanation": "one file is missing",
    }  # fmt: skip


def test_unscored_is_no_reward(branched):
    score = Score("t1", "task-7", "task-7", "unscored", None, detail="no verifier applies")
    extra = write_episode(Episode(branched, score))[0]["extra"]
    assert "reward" not in extra
    assert extra["score_parts"] == {"status": "unscored", "detail": "no verifier applies"}


def test_our_reader_gives_the_conversations_back(documents, branched):
    for document, branch in zip(documents, branched.branches, strict=False):
        wanted = [dict(message) for message in branch["messages"]]
        for message in wanted:  # traces have thinking under this name, whatever the log called it
            if "reasoning_content" in message:
                message["reasoning"] = message.pop("reasoning_content")
        trace = read(document, PLACE)
        assert trace.messages == wanted
        assert (trace.outcome, trace.task, trace.session) == (0.25, "task-7", "t1")
    assert [part.value["trajectory_id"] for part in split(documents[0])] == ["t1", "t1-branch-2"]


def test_tokens_come_back_as_one_row(documents):
    tokens = read(documents[0], PLACE).tokens
    assert tokens["token_ids"] == list(range(100, 110))
    assert tokens["action_mask"] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]


def test_a_trace_comes_back(documents, as_json):
    trace = read(documents[0], PLACE)
    again = read(as_json(write_trace(trace)), PLACE)
    for name in ("id", "messages", "tools", "session", "outcome", "task", "model"):
        assert getattr(again, name) == getattr(trace, name), name


def test_another_producers_extra_is_no_message():
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "other", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hi", "extra": {"openai_message": "text"}},
            {"step_id": 2, "source": "agent", "message": "hello", "extra": {"role": "tool"}},
        ],
    }
    assert read(document, PLACE).messages == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
