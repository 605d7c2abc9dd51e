"""A teacher behind a real endpoint plays tasks: what it sees, which episodes are kept, and resuming after a stop."""

import dataclasses
import json
import threading
import time

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError, InfrastructureError, InputError
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, play
from tracewheel.teacher.teach import teach


def calls_message(*calls, identity="x"):
    return {
        "tool_calls": [
            {"id": f"{identity}{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    }


@pytest.fixture
def knowing(tasks):
    """Answers with the known solution of the prompt's task, one call per turn."""
    by_prompt = {task.prompt: solution(task) for task in tasks}

    def answer(body, number):
        messages = body["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        name, arguments = by_prompt[messages[1]["content"]][turn]
        return calls_message((name, json.dumps(arguments)), identity=f"call-{number}-")

    return answer


@pytest.fixture
def taught(config, tmp_path):
    """Run the stage against a server with changed settings of the teacher; returns the folder and the report."""

    def run(server, tasks, *, rollout=None, out="taught", **teacher):
        values = config.model_dump()
        settings = {"endpoint": server.url, "model": "big", "samples": 1, "retries": 0, "timeout": 5} | teacher
        changed = RetrainConfig.model_validate(values | {"teacher": settings, "rollout": values["rollout"] | (rollout or {})})
        report = teach(changed, tasks, tmp_path / out, journal=tmp_path / "journal.jsonl")
        return tmp_path / out, report

    return run


def attempts_of(folder):
    return pd.read_parquet(folder / "attempts.parquet")


def test_solved_tasks_become_demonstrations(chat_server, taught, tasks, knowing, renderer):
    folder, report = taught(chat_server(knowing), tasks)
    replies = sum(len(solution(task)) for task in tasks)
    assert report == {
        "episodes": 8,
        "success": 1.0,
        "demonstrations": 8,
        "tasks": 8,
        "tasks_taught": 8,
        "left_out": {},
        "replies": replies,
        "prompt_tokens": 100 * replies,
        "cached_tokens": 0,
        "completion_tokens": 10 * replies,
        "replies_without_usage": 0,
        "cost": None,
        "stopped": "",
    }
    assert json.loads((folder / "metrics.json").read_text()) == report
    episodes = pd.read_parquet(folder / "episodes.parquet")
    assert episodes["task_id"].tolist() == [task.id for task in tasks]
    assert set(episodes["split"]) == {"train"} and set(episodes["success"]) == {1.0}
    for task, spoken, tools in zip(tasks, episodes["messages"], episodes["tools"], strict=True):
        imitated = renderer.conversation_ids(json.loads(spoken), json.loads(tools))
        assert imitated == renderer.conversation_ids(play(task, solution(task)), TOOLS), "token by token what a rollout has"


def test_the_teacher_never_sees_the_answer(chat_server, taught, tasks, knowing):
    """Only the task's prompt is sent; no request holds the goal that the verifier reads."""
    marked = [dataclasses.replace(task, goal=task.goal | {"answer": "GOLD-ANSWER"}, verifier="workspace") for task in tasks]
    server = chat_server(knowing)
    taught(server, marked)
    assert len(server.requests) == sum(len(solution(task)) for task in tasks)
    for headers, body in server.requests:
        sent = json.dumps([headers, body])
        assert "GOLD-ANSWER" not in sent and "selector" not in sent and "initial_state" not in sent
        assert set(body) == {"model", "messages", "tools", "temperature", "max_tokens", "seed"}
        assert body["tools"] == TOOLS
        system, user = body["messages"][:2]
        task = next(task for task in tasks if task.prompt == user["content"])
        assert system == {"role": "system", "content": "You are a file-management agent."}
        # Then come only its own messages and the environment's replies to them.
        for said, expected in zip(body["messages"][2:], play(task, solution(task))[2:], strict=False):
            assert said["role"] == expected["role"] and (said["role"] != "tool" or said["content"] == expected["content"])


def test_duplicates_are_left_out(chat_server, taught, tasks, knowing):
    server = chat_server(knowing)
    folder, report = taught(server, tasks[:2], samples=3)
    assert report["episodes"] == 6 and report["demonstrations"] == 2
    assert report["left_out"] == {"same as another": 4}
    assert len({body["seed"] for _, body in server.requests}) == 6, "samples of a task are asked for with seeds of their own"
    assert attempts_of(folder)["sample"].tolist() == [0, 1, 2, 0, 1, 2]


def last_step(message):
    """Solve the task, but send `message` instead of the last call."""

    def answer_with(knowing):
        def answer(body, number):
            said = knowing(body, number)
            return message if said["tool_calls"][0]["function"]["name"] == "finish" else said

        return answer

    return answer_with


def refused_at(tool, message):
    """Solve the task, but refuse the request that would call `tool`."""

    def answer_with(knowing):
        def answer(body, number):
            said = knowing(body, number)
            return (400, {}, {"error": message}) if said["tool_calls"][0]["function"]["name"] == tool else said

        return answer

    return answer_with


def before(first):
    """Send `first`, then solve the task."""

    def answer_with(knowing):
        def answer(body, number):
            messages = body["messages"]
            if len(messages) == 2:
                return first
            opening = 2 + next(i for i, m in enumerate(messages[2:], 1) if i == len(messages) - 2 or m["role"] == "tool")
            return knowing(body | {"messages": messages[:2] + messages[opening:]}, number)

        return answer

    return answer_with


@pytest.mark.parametrize(
    ("answers", "rollout", "stop_reason", "success", "fault"),
    [
        (last_step({"content": "All done."}), {}, "no_tool_call", 1.0, ""),
        (lambda knowing: lambda body, number: {"content": "No."}, {}, "no_tool_call", 0.0, "failed"),
        (lambda knowing: lambda body, number: calls_message(("finish", "{}")), {}, "finished", 0.0, "failed"),
        (before(calls_message(("read_file", "{oops"))), {}, "finished", 1.0, "malformed call"),
        (before(calls_message(("read_file", "[1]"))), {}, "finished", 1.0, "malformed call"),
        (before(calls_message(("no_such_tool", "{}"))), {}, "finished", 1.0, ""),
        (before(calls_message(("list_files", '{"path": "/"}'), ("list_files", '{"path": ""}'))), {}, "finished", 1.0, ""),
        (last_step({"content": "I am", "finish_reason": "length"}), {}, "max_tokens", 1.0, "not ended"),
        (lambda knowing: knowing, {"max_turns": 2}, "max_turns", 0.0, "failed"),
        (lambda knowing: knowing, {"max_tokens": 60}, "finished", 1.0, "longer than rollout.max_tokens"),
        (lambda knowing: knowing, {"max_turn_tokens": 9}, "finished", 1.0, "a turn longer than rollout.max_turn_tokens"),
        (refused_at("finish", "no"), {}, "refused", 1.0, "refused"),
        (refused_at("finish", "the maximum context length is 9 tokens"), {}, "max_tokens", 1.0, "not ended"),
    ],
)
def test_stop_reason_success_and_fault_of_an_episode(
    chat_server, taught, tasks, knowing, answers, rollout, stop_reason, success, fault
):
    """Checks the first task; the second is solved, so that not all are refused."""
    wayward = answers(knowing)

    def answer(body, number):
        return (wayward if body["messages"][1]["content"] == tasks[0].prompt else knowing)(body, number)

    folder, report = taught(chat_server(answer), tasks[:2] if stop_reason == "refused" else tasks[:1], rollout=rollout)
    attempt = attempts_of(folder).to_dict("records")[0]
    assert (attempt["stop_reason"], attempt["success"], attempt["fault"]) == (stop_reason, success, fault)
    taught_ids = pd.read_parquet(folder / "episodes.parquet")["task_id"].tolist()
    assert (tasks[0].id in taught_ids) == (not fault) and report["demonstrations"] == len(taught_ids)
    assert report["left_out"] == ({fault: 1} if fault else {})


def test_episodes_that_the_verifier_cannot_judge_are_unscored(chat_server, taught, tasks, knowing):
    spoilt = dataclasses.replace(tasks[0], goal={})
    folder, report = taught(chat_server(knowing), [spoilt, tasks[1]])
    attempts = attempts_of(folder)
    assert attempts["success"].isna().tolist() == [True, False] and attempts["fault"].tolist() == ["unscored", ""]
    assert "the verifier cannot judge: KeyError" in attempts["detail"][0]
    assert report["success"] == 1.0, "over the episodes that were judged"


def test_a_teacher_that_solves_nothing_leaves_an_empty_file(chat_server, taught, tasks):
    folder, report = taught(chat_server(lambda body, number: {"content": "No."}), tasks[:2])
    assert report["demonstrations"] == 0 and report["success"] == 0.0
    assert pd.read_parquet(folder / "episodes.parquet").empty


def test_episodes_run_at_once_up_to_the_concurrency(chat_server, taught, tasks, knowing):
    gate = threading.Barrier(3, timeout=5)

    def answer(body, number):
        if number and body["messages"][-1]["role"] == "user":
            gate.wait()  # passes only when three episodes run at once
        return knowing(body, number)

    server = chat_server(answer)
    _, report = taught(server, tasks[:7], concurrency=3)
    assert report["demonstrations"] == 7
    assert server.most_open == 3


def test_an_endpoint_that_does_not_answer_fails_at_the_first_episode(chat_server, taught, tasks):
    server = chat_server(lambda body, number: (500, {}, b"down"))
    with pytest.raises(InfrastructureError, match="no answer after 1 tries; last error: status 500: down"):
        taught(server, tasks)
    assert len(server.requests) == 1


def test_a_later_failed_episode_is_recorded_and_tried_again(chat_server, taught, tasks, knowing):
    def failing(body, number):
        return (500, {}, b"down") if body["messages"][1]["content"] == tasks[1].prompt else knowing(body, number)

    mood = {"down": True}
    server = chat_server(lambda body, number: failing(body, number) if mood["down"] else knowing(body, number))
    folder, report = taught(server, tasks[:3])
    assert report["left_out"] == {"infrastructure_failed": 1} and report["demonstrations"] == 2
    assert attempts_of(folder)["success"].isna().tolist() == [False, True, False]
    mood["down"] = False
    server.requests.clear()
    _, report = taught(server, tasks[:3])
    assert report["demonstrations"] == 3
    assert {body["messages"][1]["content"] for _, body in server.requests} == {tasks[1].prompt}


def test_after_a_stop_only_missing_episodes_are_played(chat_server, taught, tasks, knowing, tmp_path):
    """The key is revoked during the run; episodes that ended before are not paid for twice."""
    mood = {"refuse": True}

    def answer(body, number):
        if mood["refuse"] and body["messages"][1]["content"] == tasks[5].prompt:
            time.sleep(0.3)
            return 401, {}, {"error": {"message": "expired"}}
        return knowing(body, number)

    server = chat_server(answer)
    with pytest.raises(InputError, match="expired"):
        taught(server, tasks, concurrency=2)
    journal = tmp_path / "journal.jsonl"
    noted = [json.loads(line) for line in journal.read_text().splitlines()]
    played = [entry["attempt"]["task_id"] for entry in noted if "attempt" in entry]
    assert 5 <= len(played) < 8
    journal.write_text(journal.read_text() + '{"key": "cut o')
    mood["refuse"] = False
    server.requests.clear()
    _, report = taught(server, tasks, concurrency=2)
    assert report["demonstrations"] == 8
    asked = {body["messages"][1]["content"] for _, body in server.requests}
    assert asked == {task.prompt for task in tasks if task.id not in played}


def test_changed_settings_play_new_episodes(chat_server, taught, tasks, knowing):
    server = chat_server(knowing)
    taught(server, tasks[:1])
    first = len(server.requests)
    taught(server, tasks[:1])
    assert len(server.requests) == first
    taught(server, tasks[:1], temperature=0.3)
    assert len(server.requests) == 2 * first


def test_a_profile_without_a_teacher_is_an_error(config, tasks, tmp_path):
    with pytest.raises(ConfigError, match="set teacher.endpoint and teacher.model"):
        teach(config, tasks, tmp_path / "out", journal=tmp_path / "journal.jsonl")
