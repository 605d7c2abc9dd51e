"""A small curated folder of the workspace, a policy that obeys its prompt and a table of edits, both behind real HTTP."""

import json
import re

import pytest

from plugins.prompts.benchmarks.edits import edited
from plugins.prompts.benchmarks.obedient_logs import RULES, log_lines, obeyed
from tracewheel import CurateSections, RetrainConfig, curate, ingest, load_tasks, make_environment
from tracewheel_prompts.players import EndpointPlayer
from tracewheel_prompts.settings import PromptSettings


def profile_of(logs, **more):
    sizes = {"train_tasks": 24, "validation_tasks": 12, "held_out_tasks": 24, "harder_tasks": 0, "min_attempts": 1}
    values = {
        "name": "prompts",
        "threads": 1,
        "environment": {"kind": "workspace"},
        "ingest": {"paths": [str(logs)]},
        "curation": sizes,
        "rollout": {"max_turns": 16},
        "evaluation": {"samples": 1, "pass_at": [1]},
        "gate": {"gates_per_year": 1},
    }
    return RetrainConfig.model_validate(values | more)


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "obedient.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in log_lines(64, 2)))
    return path


@pytest.fixture(scope="session")
def curated(logs, tmp_path_factory):
    """24 training, 12 validation, 24 held-out tasks."""
    config, folder = profile_of(logs), tmp_path_factory.mktemp("curated")
    ingest(config.ingest, folder / "ingested")
    (folder / "curated").mkdir()
    curate(CurateSections.of(config), folder / "ingested", folder / "curated")
    return folder / "curated"


@pytest.fixture(scope="session")
def splits(curated):
    return {split: load_tasks(curated, split) for split in ("train", "validation", "held_out")}


@pytest.fixture
def policy(chat_server, splits):
    """A hosted policy that does what its system prompt says."""
    world = make_environment("workspace")
    known = {}
    for tasks in splits.values():
        known |= {(task.prompt, _listing(task)): task for task in tasks}
    by_prompt = {}
    for task in known.values():
        by_prompt.setdefault(task.prompt, []).append(task)

    def answer(body, number):
        system, request = body["messages"][0]["content"], body["messages"][1]["content"]
        told = {name for name, sentence in RULES.items() if sentence in system}
        said = [message for message in body["messages"] if message["role"] == "assistant"]
        # Tasks with equal requests are told apart by what their tools have replied.
        task = next(task for task in by_prompt[request] if _fits(world, task, told, body["messages"]))
        name, args = obeyed(world.solution(task), task, told)[len(said)]
        call = {"id": f"call_{len(said)}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        return {"tool_calls": [call]}

    return chat_server(answer)


def _listing(task):
    return json.dumps(task.initial_state, sort_keys=True)


def _fits(world, task, told, messages):
    world.reset(task)
    replies = iter([message["content"] for message in messages if message["role"] == "tool"])
    for name, args in obeyed(world.solution(task), task, told):
        reply = next(replies, None)
        if reply is None:
            return True
        if world.step(name, args).text != reply:
            return False
    return True


@pytest.fixture
def table(chat_server):
    """A reflection model that knows the table of edits."""
    return chat_server(lambda body, number: {"content": edited(body["messages"][-1]["content"], body["seed"])})


def settings_for(url, **more):
    reflection = {"endpoint": url, "model": "table", "retries": 0, "timeout": 20.0, **more.pop("reflection", {})}
    usual = {"parts": ["system"], "minibatch": 8, "validation_tasks": 12, "iterations": 12, "reflections": 12}
    return PromptSettings.model_validate({"reflection": reflection, **usual, **more})


@pytest.fixture
def player(policy, logs, curated):
    baseline = {"endpoint": policy.url, "model": "policy", "max_turn_tokens": 100, "retries": 0, "concurrency": 4}
    return EndpointPlayer(profile_of(logs, baseline=baseline), curated, 1, 0)


def requests_of(server):
    """The users' words that a policy was asked."""
    return {body["messages"][1]["content"] for _, body in server.requests}


def feedback_of(server):
    return [re.sub(r"\s+", " ", body["messages"][-1]["content"]) for _, body in server.requests]
