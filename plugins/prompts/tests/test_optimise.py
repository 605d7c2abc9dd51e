"""GEPA between two real endpoints: what it finds, what it may see, what it may cost, and what breaks it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from plugins.prompts.benchmarks.edits import edited
from plugins.prompts.benchmarks.obedient_logs import BASE, RULES
from plugins.prompts.tests.conftest import feedback_of, requests_of, settings_for
from tracewheel import DataError, InputError, LeakError, open_environment
from tracewheel_prompts.journal import Journal
from tracewheel_prompts.judging import judge, overfitting, page
from tracewheel_prompts.optimise import PromptAdapter, optimise
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.reflection import Reflector


@pytest.fixture
def run(player, curated, splits, tmp_path):
    """Optimises with a reflection endpoint; returns what was found, and the reflector."""

    def optimised(settings, journal="journal"):
        tools = {}
        with open_environment("workspace") as world:
            tools = {tool["function"]["name"]: tool["function"]["description"] for tool in world.tools()}
        train, validation = splits["train"], splits["validation"][: settings.validation_tasks]
        with Journal(tmp_path / journal, "run") as notes, Reflector(settings, notes) as reflector:
            adapter = PromptAdapter(settings, player, Prompt(system=BASE), tools, train, validation, curated, notes, reflector)
            return optimise(adapter, train, validation, tmp_path / "gepa.log"), reflector

    return optimised


def test_it_finds_the_sentences_and_sees_no_held_out_task(run, table, policy, player, splits, tmp_path):
    found, reflector = run(settings_for(table.url))
    assert found.prompt.system.startswith(BASE) and sum(text in found.prompt.system for text in RULES.values()) >= 2
    scores = [one["validation"] for one in found.candidates]
    assert max(scores) > scores[0] and found.stopped.startswith("iterations: 12")

    seen = {"train": {task.id for task in splits["train"]}, "validation": {task.id for task in splits["validation"]}}
    assert set(found.seen) <= seen["train"] | seen["validation"]
    known = {task.prompt for split in ("train", "validation") for task in splits[split]}
    held_out = {task.prompt for task in splits["held_out"]} - known
    assert held_out and not requests_of(policy) & held_out  # what really went over the wire

    asked = "\n".join(feedback_of(table))
    others = {task.prompt for split in ("validation", "held_out") for task in splits[split]}
    others -= {task.prompt for task in splits["train"]}
    assert not [prompt for prompt in others if prompt in asked]
    assert not [1 for tasks in splits.values() for task in tasks if json.dumps(task.goal) in asked]

    seen = {name: sorted(ids & set(found.seen)) for name, ids in seen.items()}
    judged = judge(player, Prompt(system=BASE), found.prompt, seen, tmp_path)
    assert requests_of(policy) & held_out
    rates = judged["splits"]["held_out"]["rates"]
    assert rates["after"]["greedy"]["rate"] > rates["before"]["greedy"]["rate"] and judged["splits"]["held_out"]["tasks"] == 24
    report = {
        "prompt": {**found.prompt.model_dump(), "digest": found.prompt.digest},
        "before": {"digest": "b"},
        "stopped": found.stopped,
        "tokens": found.tokens,
        "iterations": found.iterations,
        "candidates": found.candidates,
        "reflection": {"model": "m", "asked": reflector.asked, "unusable": 0, "cost": None},
        "overfitting": overfitting(judged["splits"], judged["gate"]),
        **judged,
    }
    shown = page(report)
    assert all(f" {split} |" in shown for split in ("train", "validation", "held_out")) and report["overfitting"] in shown


def test_the_token_budget_is_never_exceeded(run, table, player):
    most = player.most_tokens  # 100 a turn, 16 turns
    start = 12 * most
    with pytest.raises(DataError, match="the start cannot be judged on validation: tokens: 0 of"):
        run(settings_for(table.url, tokens=start - 1), "small")
    assert not table.requests
    found, _ = run(settings_for(table.url, tokens=start + 100, minibatch=12), "larger")
    assert found.stopped.startswith("tokens: ") and found.stopped.endswith(f"the next 12 tasks may take {start:,}")
    assert 0 < found.tokens <= start and not table.requests


def test_replies_and_money_are_bounded(run, table):
    found, reflector = run(settings_for(table.url, reflections=2), "two")
    assert reflector.asked == len(table.requests) == 2 and found.stopped == "reflections: 2 replies were asked for"
    # A reply is 100 and 10 tokens: 0.00012 at these prices; the most that one may cost is reserved before it is sent.
    reflection = {"prices": {"input": 1.0, "output": 2.0}, "budget": 0.0045, "max_turn_tokens": 1000}
    found, reflector = run(settings_for(table.url, reflection=reflection), "money")
    assert "the budget of 0.0045 is reached" in found.stopped
    assert reflector.cost == pytest.approx(0.00012 * reflector.asked) and reflector.cost < 0.0045


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda body, number: {"content": "I cannot help with that."},
            "the last 3 replies of table were unusable: it holds no text",
        ),
        (lambda body, number: {"content": "```\n" + "x" * 5000 + "\n```"}, "unusable: the text has 5000 characters"),
        (lambda body, number: (500, {}, b"broken"), "the reflection model does not answer: "),
        (lambda body, number: (200, {}, b"{}"), "the reflection model does not answer: "),
        (lambda body, number: time.sleep(3), "the reflection model does not answer: "),
    ],
    ids=["rubbish", "too long", "500", "no completion", "hangs"],
)
def test_a_bad_reflection_model_ends_the_run_with_what_was_found(run, chat_server, answer, says):
    found, _ = run(settings_for(chat_server(answer).url, reflection={"timeout": 1.0}))
    assert found.prompt == Prompt(system=BASE) and says in found.stopped
    assert len(found.candidates) == 1


def test_a_start_that_could_not_be_scored_is_played_again_when_its_cause_is_gone(run, table, splits, player, monkeypatch):
    ill, play = [splits["validation"][3].id], type(player).play

    def played(self, prompt, tasks):
        found = play(self, prompt, tasks)
        return [
            one._replace(score=replace(one.score, status="unscored", total=None, breakdown={}))
            if one.trajectory.task_id in ill
            else one
            for one in found
        ]

    monkeypatch.setattr(type(player), "play", played)
    settings = settings_for(table.url, iterations=2)
    with pytest.raises(DataError, match="1 of 12 tasks have no score"):
        run(settings)
    ill.clear()
    found, _ = run(settings)
    plain, _ = run(settings, "another")
    assert found.candidates == plain.candidates and found.tokens > plain.tokens  # what failed was sampled as well


def test_a_wrong_key_is_the_users_error(run, chat_server):
    with pytest.raises(InputError, match="401"):
        run(settings_for(chat_server(lambda body, number: (401, {}, b"no")).url))


def test_a_task_of_another_split_is_refused(run, table, player, curated, splits, tmp_path):
    settings = settings_for(table.url)
    with Journal(tmp_path / "leak", "run") as notes, Reflector(settings, notes) as reflector:
        adapter = PromptAdapter(
            settings, player, Prompt(system=BASE), {}, splits["train"], splits["validation"], curated, notes, reflector
        )
        with pytest.raises(LeakError, match=splits["held_out"][0].id):
            adapter.evaluate(splits["held_out"][:1], adapter.seed())


def test_tools_and_demonstrations_are_parts(run, table, splits):
    found, _ = run(settings_for(table.url, parts=["demonstrations", "tools"], iterations=7, demonstrations=2))
    asked = feedback_of(table)
    assert asked and all("the description of its tool" in text for text in asked)
    assert set(found.prompt.tools) <= {"list_files", "read_file", "move_file", "write_file", "finish"}
    assert found.prompt.system == BASE and len(found.prompt.demonstrations) <= 2


def test_a_killed_run_goes_on_and_pays_nothing_twice(policy, chat_server, curated, logs, tmp_path):
    """The command in a process of its own, killed at its fourth reflection."""
    victim, kill = [], [True]

    def answer(body, number):
        if kill[0] and number == 3:
            os.kill(victim[0].pid, signal.SIGKILL)
        return {"content": edited(body["messages"][-1]["content"], body["seed"])}

    table = chat_server(answer)
    profile = {
        "threads": 1,
        "environment": {"kind": "workspace"},
        "work_dir": str(tmp_path / "work"),
        "rollout": {"max_turns": 16},
        "evaluation": {"samples": 1, "pass_at": [1]},
        "baseline": {"endpoint": policy.url, "model": "policy", "max_turn_tokens": 100, "retries": 0},
    }
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))
    settings = settings_for(table.url, iterations=6).model_dump(mode="json")
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    words = [str(tmp_path / "profile.yaml"), str(tmp_path / "settings.yaml"), "--curated", str(curated), "--baseline"]

    def command(out):
        line = [sys.executable, "-m", "flows.cli", "prompt", *words, "--out", str(tmp_path / out)]
        victim[:] = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
        said = victim[0].communicate(timeout=600)
        return victim[0].returncode, "".join(said)

    assert command("out")[0] == -signal.SIGKILL
    assert not (tmp_path / "out").exists() and list(tmp_path.glob(".out.prompt-journal.jsonl"))
    kill[0], played = False, len(policy.requests)
    code, said = command("out")
    assert code == 0, said
    resumed, before = len(policy.requests) - played, len(table.requests)
    assert not list(tmp_path.glob(".out.prompt-journal.jsonl"))
    asked = len(policy.requests)
    code, said = command("whole")
    whole, replies = len(policy.requests) - asked, len(table.requests) - before
    assert before == replies + 1  # the fourth was asked for again: its reply was never read
    one, other = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("out", "whole"))
    assert one == other and resumed < whole
    for name in ("prompt.json", "prompt.md", "profile.yaml", "gate.json"):
        assert Path(tmp_path / "out" / name).read_bytes() == Path(tmp_path / "whole" / name).read_bytes()
