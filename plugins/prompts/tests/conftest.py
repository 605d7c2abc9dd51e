"""A small curated folder of the workspace, a policy that obeys its prompt and a table of edits, both behind real HTTP."""

import re

import pytest

from plugins.prompts.benchmarks.edits import edited
from plugins.prompts.benchmarks.obedient_logs import log_lines, obedient
from tracewheel import CurateSections, RetrainConfig, curate, ingest, load_tasks
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
    answer = obedient([task for tasks in splits.values() for task in tasks])
    return chat_server(lambda body, number: answer(body))


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
