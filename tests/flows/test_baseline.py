"""`tracewheel evaluate --endpoint` from the command line: its result, kills, a budget, and the gate against it."""

import json
import random
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import yaml

from flows.cli import main
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import play
from tracewheel.environments.workspace.tasks import FAMILIES, make_task


@pytest.fixture
def held_out():
    rng = random.Random(8)
    return [make_task(family, 1, rng) for family in FAMILIES for _ in range(2)]


@pytest.fixture
def knowing(held_out):
    by_prompt = {task.prompt: solution(task) for task in held_out}

    def answer(body, number):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        name, arguments = by_prompt[body["messages"][1]["content"]][turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}]}

    return answer


@pytest.fixture
def command(base, held_out, tmp_path):
    """A command for an endpoint, on a curation's output with only held-out tasks."""
    curated = tmp_path / "curated"
    curated.mkdir()
    pd.DataFrame([task.to_record() | {"split": "held_out"} for task in held_out]).to_parquet(curated / "tasks.parquet")
    said = [{"task_id": task.id, "messages": json.dumps(play(task, solution(task))), "tools": "[]"} for task in held_out]
    pd.DataFrame(said).to_parquet(curated / "episodes.parquet")
    profile = tmp_path / "profile.yaml"
    profile.write_text(yaml.safe_dump({"name": "test", "threads": 1, "policy": {"base": base}, "gate": {"min_pairs": 5}}))

    def make(url, *more):
        where = ["--curated", str(curated), "--out", str(tmp_path / "out"), "--endpoint", url, "--model", "gpt-like"]
        return ["evaluate", str(profile), *where, *more]

    return make


def sent(server):
    """The conversations that a server was asked to continue."""
    return [json.dumps([body["temperature"], body["seed"], body["messages"]]) for _, body in server.requests]


def test_a_killed_baseline_resumes_and_pays_for_nothing_twice(chat_server, knowing, command, held_out, tmp_path):
    """After several kills no conversation is sent twice, except requests in flight at a kill."""
    slow = {"seconds": 0.05}

    def answer(body, number):
        time.sleep(slow["seconds"])
        return knowing(body, number)

    server = chat_server(answer)
    line = command(server.url, "--samples", "1", "--json", "--set", "baseline.concurrency=2")
    journal, rng, under_way = tmp_path / "out.journal.jsonl", random.Random(3), 0
    for _ in range(3):
        before = len(server.requests)
        process = subprocess.Popen([sys.executable, "-m", "flows.cli", *line], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        deadline, moment = time.monotonic() + 60, before + rng.randrange(1, 12)
        while len(server.requests) < moment and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
        time.sleep(3 * slow["seconds"])
        noted = sum("reply" in json.loads(line) for line in journal.read_text().splitlines()) if journal.exists() else 0
        under_way = len(server.requests) - noted
        assert under_way <= 2 * 4
    slow["seconds"] = 0
    assert main(line) == 0
    total = 2 * sum(len(solution(task)) for task in held_out)
    conversations = sent(server)
    assert len(set(conversations)) == total
    assert len(conversations) == total + under_way, "twice only what was under way when it was killed"
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["greedy"]["rate"] == evaluation["sampled"]["rate"] == 1.0 and evaluation["greedy"]["n"] == 8
    assert evaluation["endpoint"]["replies"] == total
    assert not journal.exists()


def test_the_terminal_shows_rates_cost_and_time(chat_server, knowing, command, capsys):
    server = chat_server(knowing)
    line = command(server.url, "--samples", "0", "--tasks", "4", "--set", "baseline.prices={input: 1000, output: 1000}")
    assert main(line) == 0
    shown = capsys.readouterr().out
    replies = len(server.requests)
    assert "gpt-like on 4 tasks of held_out" in shown and "100.0%" in shown and "51.0% to 100.0%" in shown
    shown = " ".join(shown.split())
    assert f"{replies} replies {100 * replies} prompt tokens (0 cached), {10 * replies} completion tokens" in shown
    assert f"cost {0.11 * replies:.4f}" in shown and f"{replies} requests, 0 of them repeated" in shown


def test_a_spent_budget_stops_a_baseline_and_keeps_its_results(chat_server, knowing, command, capsys, tmp_path):
    server = chat_server(knowing)
    prices = ["--set", "baseline.prices={input: 1000, output: 1000}", "--set", "baseline.max_turn_tokens=10"]
    line = command(server.url, "--samples", "0", "--json", *prices)
    assert main([*line, "--set", "baseline.budget=5"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["endpoint"]["cost"] <= 5 and 0 < result["greedy"]["n"] < 8 and "the budget of 5" in result["stopped"]
    assert "the same command resumes from" in " ".join(captured.err.split()) and (tmp_path / "out.journal.jsonl").exists()
    asked = len(server.requests)
    assert main([*line, "--set", "baseline.budget=500"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["stopped"] == "" and result["greedy"]["n"] == 8
    assert len(set(sent(server))) == len(server.requests) > asked
    assert not (tmp_path / "out.journal.jsonl").exists()


def test_the_gate_compares_a_policy_with_a_baseline(chat_server, knowing, command, held_out, tmp_path, capsys):
    """The model behind the endpoint solves every second task; a challenger that solves all is promoted."""
    stupid = {task.prompt for task in held_out[::2]}

    def answer(body, number):
        if body["messages"][1]["content"] in stupid:
            return {"content": "I do not know."}
        return knowing(body, number)

    line = command(chat_server(answer).url, "--samples", "1", "--json")
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["greedy"]["rate"] == 0.5
    challenger = tmp_path / "challenger"
    challenger.mkdir()
    results = pd.read_parquet(tmp_path / "out" / "results.parquet")
    for name, greedy, code in (("better", 1.0, "promoted"), ("same", results["greedy"], "refused")):
        results.assign(greedy=greedy).to_parquet(challenger / "results.parquet")
        pair = ["--challenger", str(challenger), "--baseline", f"gpt={tmp_path / 'out'}", "--verdict-only", "--json"]
        main(
            [
                "champion",
                "promote",
                line[1],
                *pair,
                "--set",
                "gate.confidence=0.8",
                "--set",
                "gate.gates_per_year=1",
                "--set",
                "gate.family_margin=1.0",
            ]
        )
        verdict = json.loads(capsys.readouterr().out)
        assert (verdict["verdict"], verdict["baseline"], verdict["pairs"]) == (code, "gpt", 8), name
    same, work = str(tmp_path / "out"), tmp_path / "work"
    asked = ["--challenger", same, "--baseline", f"gpt={same}", "--json", "--set", f"work_dir={work}"]
    assert main(["champion", "promote", line[1], *asked]) == 3
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["cause"], verdict["level"]) == ("nothing_learnt", None), "both played every episode alike"
    assert not list(work.rglob("gates*")), "no place in the sequence of gates is spent"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples", "-1"], "--samples -1: 0 or more"),
        (["--split", "train"], "--split train: no task of it"),
        (["--split", "elsewhere"], "the splits are"),
        (["--endpoint", "example.org"], "baseline.endpoint"),
        (["--set", "baseline.budget=2"], "a budget needs prices"),
        (["--samples", "0", "--sampled-only"], "neither greedy nor sampled"),
    ],
)
def test_bad_input_is_named_before_any_request(chat_server, knowing, command, capsys, options, message):
    server = chat_server(knowing)
    assert main(command(server.url, *options)) == 2
    assert message in capsys.readouterr().err
    assert server.requests == []
