"""A scripted model behind a real endpoint is evaluated like a policy: known successes, costs, stops, and resuming."""

import json
import random

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.files import read_json, read_records
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.evaluation.evaluate import evaluate
from tracewheel.evaluation.gate import decide
from tracewheel.policy.adapters import PolicyRef
from tracewheel.teacher.baseline import evaluate_endpoint

PRICES = {"input": 1000.0, "cached_input": 100.0, "output": 10000.0}
# 100 prompt tokens, 40 of them cached, and 10 completion tokens.
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}
COST = (60 * 1000 + 40 * 100 + 10 * 10000) / 1e6


@pytest.fixture(scope="module")
def split():
    rng = random.Random(21)
    return [make_task(family, tier, rng) for tier in (1, 2) for family in FAMILIES]


def scripted(tasks, solves):
    """Solves the tasks for which `solves(index, temperature, seed)` is true; finishes the others at once."""
    known = {task.prompt: (index, solution(task)) for index, task in enumerate(tasks)}

    def answer(body, number):
        index, calls = known[body["messages"][1]["content"]]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        name, arguments = calls[turn] if solves(index, body["temperature"], body["seed"]) else ("finish", {})
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"c{number}", "type": "function", "function": function}], "usage": USAGE}

    return answer


@pytest.fixture
def measure(config, tmp_path):
    """Evaluate an endpoint; returns the folder, the summary and the outcome of playing."""

    def run(server, tasks, *, samples=2, greedy=True, out="baseline", profile=None, **baseline):
        settings = {"endpoint": server.url, "model": "big", "retries": 0, "timeout": 5, "prices": PRICES} | baseline
        changed = RetrainConfig.model_validate(config.model_dump() | {"baseline": settings} | (profile or {}))
        folder = tmp_path / out
        folder.mkdir()
        journal = tmp_path / "journal.jsonl"
        summary, played = evaluate_endpoint(changed, tasks, folder, samples=samples, greedy=greedy, journal=journal)
        return folder, summary, played

    return run


def test_a_scripted_model_gets_its_known_success_rates(chat_server, measure, split):
    """It solves six of eight greedily, and every sampled episode of an even task."""
    server = chat_server(scripted(split, lambda index, temperature, seed: index < 6 if temperature == 0 else index % 2 == 0))
    folder, summary, played = measure(server, split)
    assert summary["greedy"]["rate"] == 0.75 and summary["greedy"]["n"] == 8
    assert 0.4 < summary["greedy"]["interval"][0] < 0.75 < summary["greedy"]["interval"][1] < 0.95
    assert summary["sampled"]["rate"] == 0.5 and summary["pass_at"]["1"] == 0.5
    assert summary["by_tier"]["1"]["greedy"]["rate"] == 1.0 and summary["by_tier"]["2"]["greedy"]["rate"] == 0.5
    steps = [len(solution(task)) for task in split]
    replies = sum(n if i < 6 else 1 for i, n in enumerate(steps)) + 2 * sum(n if i % 2 == 0 else 1 for i, n in enumerate(steps))
    assert summary["endpoint"] == {
        "model": "big",
        "replies": replies,
        "prompt_tokens": 100 * replies,
        "cached_tokens": 40 * replies,
        "completion_tokens": 10 * replies,
        "replies_without_usage": 0,
        "cost": pytest.approx(COST * replies),
        "trainable": 0,
    }
    assert summary["episodes"] == 24 and summary["generated_tokens"] == 10 * replies
    assert played.counts == {"sent": replies, "repeated": 0, "no_answer": 0} and played.stopped == ""
    assert len(server.requests) == replies
    assert {body["temperature"] for _, body in server.requests} == {0.0, 1.0}
    attempts = pd.read_parquet(folder / "attempts.parquet")
    assert attempts.groupby("mode").size().to_dict() == {"greedy": 8, "sampled": 16}
    assert attempts["cost"].sum() == pytest.approx(COST * replies)
    assert set(attempts["not_trainable"]) == {
        "it was played greedily, and has no distribution to learn under",
        "turn 1: the endpoint was not asked for token ids",
    }


def test_the_files_match_those_of_an_evaluation(chat_server, measure, config, base, adapter, split, tmp_path):
    """The files, columns and summary equal those of a policy; the gate compares the two."""
    folder, summary, _ = measure(chat_server(scripted(split, lambda *_: True)), split, samples=1)
    policy = evaluate(config, PolicyRef(base, str(adapter)), split, tmp_path / "policy", samples=1, seed=1)
    assert summary.keys() - policy.keys() == {"endpoint"} and policy.keys() <= summary.keys()
    assert read_json(folder / "evaluation.json") == json.loads(json.dumps(summary))
    ours, theirs = (pd.read_parquet(path / "results.parquet") for path in (folder, tmp_path / "policy"))
    assert ours.dtypes.to_dict() == theirs.dtypes.to_dict() and ours["task_id"].tolist() == theirs["task_id"].tolist()
    for mode in ("greedy", "sampled"):
        names = [sorted(path.name for path in (where / mode).iterdir()) for where in (folder, tmp_path / "policy")]
        assert set(names[0]) == {"trajectories.parquet", "scores.parquet", "metrics.json"} == set(names[1])
        assert len(read_records(folder / mode / "trajectories.parquet", Trajectory)) == 8
    verdict = decide(config.gate.model_copy(update={"min_pairs": 5}), theirs, ours, baseline="big")
    assert verdict.verdict == "refused" and verdict.greedy_difference == pytest.approx(theirs["greedy"].mean() - 1.0)


def test_unscored_episodes_are_not_failures(chat_server, measure, split):
    """One task is refused and one fails because the endpoint is down: the rate covers the other tasks."""
    solving = scripted(split, lambda index, *_: index != 5)
    mood = {"down": True}

    def answer(body, number):
        prompt = body["messages"][1]["content"]
        if prompt == split[2].prompt:
            return 400, {}, {"error": {"message": "content filter"}}
        return (500, {}, b"down") if prompt == split[3].prompt and mood["down"] else solving(body, number)

    server = chat_server(answer)
    folder, summary, played = measure(server, split, samples=1)
    results = pd.read_parquet(folder / "results.parquet")
    assert results["greedy"].isna().tolist() == [index in (2, 3) for index in range(8)]
    assert results["sampled_attempts"].tolist() == [int(index not in (2, 3)) for index in range(8)]
    assert summary["greedy"] == summary["greedy"] | {"rate": pytest.approx(5 / 6), "n": 6}
    assert "2 of 16 episodes failed, the first: InfrastructureError" in played.stopped
    mood["down"] = False
    server.requests.clear()
    _, summary, played = measure(server, split, samples=1, out="again")
    assert {body["messages"][1]["content"] for _, body in server.requests} == {split[3].prompt}, "a refusal is final"
    assert summary["greedy"]["n"] == 7 and played.stopped == ""


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_budget_stops_a_baseline_and_a_larger_one_resumes_it(chat_server, measure, split, concurrency):
    """The cost stays within the budget, unplayed episodes are missing, and nothing is asked twice."""
    server = chat_server(scripted(split, lambda *_: True))
    budget = 4.0
    folder, summary, played = measure(server, split, samples=0, budget=budget, max_turn_tokens=20, concurrency=concurrency)
    spent = COST * len(server.requests)
    assert summary["endpoint"]["cost"] == pytest.approx(spent) and spent <= budget
    results = pd.read_parquet(folder / "results.parquet")
    judged = int(results["greedy"].notna().sum())
    assert 0 < judged < 8 and summary["greedy"]["n"] == judged and summary["greedy"]["rate"] == 1.0
    assert f"{8 - judged} of 8 episodes were not played to their end: the budget of 4 is reached" in played.stopped

    asked = len(server.requests)
    _, again, played = measure(server, split, samples=0, budget=budget, max_turn_tokens=20, out="again")
    assert COST * len(server.requests) <= budget, "the budget is the command's, however often it is run"
    if concurrency == 1:  # with several at once, another episode may exceed the budget first
        assert len(server.requests) == asked and again == summary

    _, whole, played = measure(server, split, samples=0, budget=100.0, max_turn_tokens=20, out="whole")
    assert played.stopped == "" and whole["greedy"]["rate"] == 1.0 and whole["greedy"]["n"] == 8
    total = sum(len(solution(task)) for task in split)
    assert len(server.requests) == total, "each turn was paid for once, those of episodes that were cut off too"
    assert whole["endpoint"]["cost"] == pytest.approx(COST * total)


def test_a_budget_too_small_for_one_reply_sends_no_request(chat_server, measure, split):
    server = chat_server(scripted(split, lambda *_: True))
    _, summary, played = measure(server, split, samples=1, budget=0.01)
    assert server.requests == [] and summary["greedy"]["rate"] is None and summary["sampled"]["rate"] is None
    assert summary["endpoint"]["cost"] == 0 and "16 of 16 episodes" in played.stopped


def test_episodes_of_a_server_with_token_ids_are_trainable(chat_server, measure, config, renderer, split, rng=None):
    """The server renders like the policy and returns its tokens: the trajectory equals the rollout's, id by id."""
    known = {task.prompt: solution(task) for task in split}

    def answer(body, number):
        messages = body["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        name, arguments = known[messages[1]["content"]][turn]
        call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        said = renderer.assistant_ids(message)
        prompt = renderer.prompt_ids(messages[:2], body["tools"])
        if turn:
            ids, _ = renderer.conversation_ids([*messages, message], body["tools"])
            prompt = ids[: len(ids) - len(said)]
        return {"tool_calls": [call], "prompt_token_ids": prompt, "token_ids": said, "logprobs": [-0.25] * len(said)}

    folder, summary, _ = measure(chat_server(answer), split, samples=1, token_ids=True, prices=None)
    assert summary["endpoint"]["trainable"] == 8 and summary["endpoint"]["cost"] is None
    for trajectory in read_records(folder / "sampled" / "trajectories.parquet", Trajectory):
        tools = json.loads(json.dumps(make_tools(split)))
        ids, mask = renderer.conversation_ids(trajectory.messages, tools)
        assert (trajectory.token_ids, trajectory.action_mask) == (ids, mask)
        assert trajectory.logprobs == [-0.25 * acted for acted in mask]
    greedy = read_records(folder / "greedy" / "trajectories.parquet", Trajectory)
    assert all(trajectory.token_ids == [] for trajectory in greedy)


def make_tools(split):
    from tracewheel.environments import make_environment

    return make_environment(split[0].environment).tools()


def test_a_token_cost_objective_without_token_ids_is_an_error(chat_server, measure, split):
    thrift = {"kind": "cost", "name": "thrift", "measure": "generated_tokens", "budget": 100}
    profile = {"rubric": {"objectives": [thrift]}}
    with pytest.raises(ConfigError, match="'thrift': the episode has no token ids to count"):
        measure(chat_server(scripted(split, lambda *_: True)), split, samples=0, profile=profile)


def test_one_mode_may_be_evaluated_alone(chat_server, measure, split):
    server = chat_server(scripted(split, lambda *_: True))
    folder, summary, _ = measure(server, split, samples=1, greedy=False)
    assert summary["greedy"]["rate"] is None and summary["sampled"]["rate"] == 1.0 and not (folder / "greedy").exists()
    with pytest.raises(ConfigError, match="neither greedy nor sampled"):
        measure(server, split, samples=0, greedy=False, out="none")


def test_an_endpoint_that_fails_every_episode_is_an_error(chat_server, measure, config, split, tmp_path):
    refusing = chat_server(lambda body, number: (400, {}, {"error": {"message": "temperature is not supported"}}))
    with pytest.raises(InfrastructureError, match="all 8 episodes of big failed.*temperature is not supported"):
        measure(refusing, split, samples=0)
    with pytest.raises(ConfigError, match="set baseline.endpoint and baseline.model"):
        evaluate_endpoint(config, split, tmp_path, samples=1, journal=tmp_path / "journal.jsonl")
