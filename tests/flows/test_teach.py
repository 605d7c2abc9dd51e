"""`tracewheel teach` from the command line: a real endpoint, an interruption, and use by the warm start."""

import json
import random

import pandas as pd
import pytest
import yaml

from flows.cli import main
from tasks.engine.run import settings_for
from tracewheel.config import load_config
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import play
from tracewheel.environments.workspace.tasks import FAMILIES, make_task


@pytest.fixture
def train_tasks():
    rng = random.Random(8)
    return [make_task(family, 1, rng) for family in FAMILIES]


@pytest.fixture
def knowing(train_tasks):
    by_prompt = {task.prompt: solution(task) for task in train_tasks}

    def answer(body, number):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        name, arguments = by_prompt[body["messages"][1]["content"]][turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}]}

    return answer


@pytest.fixture
def curated(train_tasks, tmp_path):
    folder = tmp_path / "curated"
    folder.mkdir()
    pd.DataFrame([task.to_record() | {"split": "train"} for task in train_tasks]).to_parquet(folder / "tasks.parquet")
    said = [{"messages": json.dumps(play(task, solution(task))), "tools": "[]"} for task in train_tasks]
    rows = [{"task_id": t.id, "split": "train", "success": 0.0, **row} for t, row in zip(train_tasks, said, strict=True)]
    pd.DataFrame(rows).to_parquet(folder / "episodes.parquet")
    return folder


@pytest.fixture
def profile(base, tmp_path):
    """Write a profile with a teacher at an address."""

    def write(url, **teacher):
        values = {
            "name": "test",
            "threads": 1,
            "policy": {"base": base},
            "teacher": {"endpoint": url, "model": "big", "samples": 1, "concurrency": 1} | teacher,
        }
        (tmp_path / "profile.yaml").write_text(yaml.safe_dump(values))
        return str(tmp_path / "profile.yaml")

    return write


def test_a_teaching_that_stopped_resumes(chat_server, knowing, profile, curated, train_tasks, tmp_path, capsys):
    """The key is revoked during the run. `test_baseline.py` kills a process that keeps the same journal."""
    mood = {"refuse": True}

    def answer(body, number):
        if mood["refuse"] and body["messages"][1]["content"] == train_tasks[2].prompt:
            return 401, {}, {"error": {"message": "expired"}}
        return knowing(body, number)

    server = chat_server(answer)
    out, journal = tmp_path / "taught", tmp_path / "taught.journal.jsonl"
    command = ["teach", profile(server.url), "--curated", str(curated), "--out", str(out), "--json"]
    assert main(command) == 2 and "expired" in capsys.readouterr().err
    assert journal.read_text().count('{"attempt"') == 2 and not out.exists()
    mood["refuse"] = False
    server.requests.clear()
    assert main(command) == 0
    assert {body["messages"][1]["content"] for _, body in server.requests} == {task.prompt for task in train_tasks[2:]}
    assert sorted(path.name for path in out.iterdir()) == ["attempts.parquet", "episodes.parquet", "metrics.json"]
    assert len(pd.read_parquet(out / "episodes.parquet")) == 4
    assert not journal.exists(), "all is written"


def test_the_result_is_one_json_object(chat_server, knowing, profile, curated, tmp_path, capsys):
    server = chat_server(knowing)
    command = ["teach", profile(server.url), "--curated", str(curated), "--out", str(tmp_path / "taught"), "--json"]
    assert main([*command, "--tasks", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["demonstrations"] == report["tasks"] == 2 and report["out"] == str(tmp_path / "taught")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "0"], "--tasks 0: at least 1"),
        (["--set", "teacher=null"], "set teacher.endpoint and teacher.model"),
        (["--set", "teacher.endpoint=example.org"], "teacher.endpoint"),
    ],
)
def test_bad_input_is_named_before_any_request(chat_server, knowing, profile, curated, tmp_path, capsys, options, message):
    server = chat_server(knowing)
    command = ["teach", profile(server.url), "--curated", str(curated), "--out", str(tmp_path / "taught")]
    assert main([*command, *options]) == 2
    assert message in capsys.readouterr().err
    assert server.requests == []


def test_extra_demonstrations_are_part_of_the_warm_starts_key(profile, tmp_path):
    """Other episodes in the same folder make another warm start."""
    folder = tmp_path / "taught"
    folder.mkdir()
    path = profile("http://127.0.0.1:1/v1")
    keys = []
    for setting, text in (("[]", "one"), (f"['{folder}']", "one"), (f"['{folder}']", "two")):
        (folder / "episodes.parquet").write_text(text)
        keys.append(settings_for(load_config(path, [f"warm_start.extra_demonstrations={setting}"]), ("warm_start",)))
    assert keys[0] != keys[1] != keys[2]
    assert "extra demonstrations" not in keys[0]


def test_the_teacher_of_a_distillation_is_part_of_the_updates_key(profile, tmp_path):
    folder = tmp_path / "teacher"
    folder.mkdir()
    path = profile("http://127.0.0.1:1/v1")
    keys = []
    for text in ("one", "two"):
        (folder / "adapter_model.safetensors").write_text(text)
        learner = f"learner={{kind: distillation, advantage: {{adapter: '{folder}'}}}}"
        keys.append(settings_for(load_config(path, [learner]), ("learner",)))
    assert keys[0] != keys[1]
