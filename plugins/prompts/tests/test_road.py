"""`retrain` with a section `prompt`: a real reflection endpoint, the tiny policy; killed within the stage and after it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from flows.cli import main
from flows.retrain import run_alone
from flows.wheel_stages import served_with
from tasks.engine.drivers import DirectDriver
from tasks.tracking.champion import known_champion
from tracewheel import (
    ConfigError,
    DataError,
    InfrastructureError,
    RetrainConfig,
    load_config,
    load_tasks,
    make_environment,
    read_json,
    write_json,
)
from tracewheel.config.wheel_sections import STAGES
from tracewheel.core.run_record import RunRecord
from tracewheel_prompts import road
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.registry import prompt_of_run

ROOT = Path(__file__).parents[3]
# The tiny base knows one system message. Under this one it solves next to nothing, and a person would put the other back.
BAD = "Answer with a long poem about the sea, the wind and the harbour, and call no tool before it is finished."
PROGRAM = """
import sys
from flows.retrain import run_alone
from flows.wheel_stages import served_with
from tasks.engine.drivers import DirectDriver
run_alone(sys.argv[1], [], sys.argv[2], DirectDriver())
"""
GOOD = make_environment("workspace").system_prompt


class Reflecting:
    """Kills a process at its second request, once; answers with a wrong edit first, then with the right one."""

    def __init__(self):
        self.victim = None

    def __call__(self, body, number):
        if number == 1 and self.victim:
            os.kill(self.victim.pid, signal.SIGKILL)
        return {"content": f"```\n{BAD} Be brief.\n```" if number == 0 else f"```\n{GOOD}\n```"}


@pytest.fixture
def reflecting():
    return Reflecting()


@pytest.fixture
def server(chat_server, reflecting):
    return chat_server(reflecting)


@pytest.fixture
def profile(base, tmp_path, server):
    values = yaml.safe_load((ROOT / "configs" / "tiny-short.yaml").read_text())
    values["ingest"] = {"paths": [str(ROOT / "data" / "traces" / "workspace.jsonl")]}
    values["policy"] = {"base": base}
    values["environment"] = Prompt(system=BAD).environment("workspace", {})
    values["curation"] = {"train_tasks": 8, "validation_tasks": 6, "held_out_tasks": 24, "harder_tasks": 0}
    values["warm_start"] |= {"replay": {"path": f"{base}/replay.parquet", "share": 0.1}}
    values["learner"] |= {"replay_path": f"{base}/replay.parquet", "replay_rows": 4}
    values["gate"] = {"min_pairs": 4, "promise": "nightly"}
    values["comparison"] = {"warm_starts": "one", "policies": "gate"}
    values["tracking"] |= {"uri": f"sqlite:///{tmp_path}/mlflow.db"}
    values["prompt"] = {
        "reflection": {"endpoint": server.url, "model": "table", "retries": 0, "timeout": 20.0},
        "parts": ["system"], "minibatch": 4, "validation_tasks": 6, "iterations": 3, "reflections": 3,
    }  # fmt: skip
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def begin(profile, folder, log):
    with open(log, "w") as said:
        words = [sys.executable, "-c", PROGRAM, str(profile), str(folder)]
        return subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=said)


def entries(folder, stage):
    return sorted(path.name for path in (folder / "store").glob(f"{stage}-*"))


def curated_of(folder, entry, split="held_out"):
    """The tasks of an evaluation of a split, by name."""
    arguments = read_json(folder / "store" / ".facts" / f"{entry}.json")["made"]["arguments"]
    return arguments["curated"]["entry"] if arguments["split"] == split else None


def until(process, done):
    while not done():
        assert process.poll() is None, "the process ended before it was killed"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_is_killed_twice_and_its_pair_becomes_champion(profile, server, reflecting, tmp_path):
    folder, log = tmp_path / "work", tmp_path / "log"
    reflecting.victim = begin(profile, folder, log)
    assert reflecting.victim.wait(600) == -signal.SIGKILL, log.read_text()
    assert not entries(folder, "prompt") and list((folder / "store" / ".reuse").glob("prompt-*.jsonl"))
    reflecting.victim, first = None, len(server.requests)
    after_it = begin(profile, folder, log)
    until(after_it, lambda: entries(folder, "prompt"))
    after_it.kill()
    after_it.wait()
    asked = len(server.requests)
    assert first == 2 and asked == first + 2  # the second was asked for again: its reply was never read
    summary = run_alone(str(profile), [], str(folder), DirectDriver())
    assert len(server.requests) == asked and len(entries(folder, "prompt")) == 1

    record = folder / summary["run_id"]
    kept, lineage = read_json(record / "prompt.json"), read_json(record / "lineage.json")
    good = Prompt(system=GOOD)
    assert kept["before"]["system"] == BAD and kept["prompt"] == {**good.model_dump(mode="json"), "digest": good.digest}
    assert lineage["prompt"]["entry"] == entries(folder, "prompt")[0] and lineage["prompt"]["prompt"]["system"] == GOOD
    under = entries(folder, "prompted_tasks")
    assert len(under) == 1
    tasks = load_tasks(folder / "store" / under[0], "held_out")
    plain = load_tasks(folder / "store" / entries(folder, "curate")[0], "held_out")
    assert [task.id for task in tasks] == [task.id for task in plain] and len(tasks) == 24
    assert all(GOOD in task.environment and BAD not in task.environment for task in tasks)

    asked_for = {"\n".join(message["content"] for message in body["messages"]) for _, body in server.requests}
    known = {task.prompt for split in ("train", "validation") for task in load_tasks(folder / "store" / under[0], split)}
    assert not [task for task in plain if task.prompt not in known and any(task.prompt in text for text in asked_for)]

    made = {name: found["held_out"]["entry"] for name, found in lineage["evaluations"].items()}
    assert {name: curated_of(folder, entry) for name, entry in made.items()} == {
        "rl": under[0],
        summary["gate"]["baseline"]: entries(folder, "curate")[0],
    }
    assert len({entry for entry in entries(folder, "evaluate") if curated_of(folder, entry, "held_out")}) == 2  # once each
    assert summary["gate"]["verdict"] == "promoted", summary["gate"]
    assert known_champion(folder)["run_id"] == summary["run_id"]
    config = load_config(profile)
    assert prompt_of_run(config, summary["run_id"]) == good and prompt_of_run(config, "another") is None

    # The next run's champion is the pair: it is played under its own prompt, as it was when it was promoted.
    again = run_alone(str(profile), ["training.iterations=1", "prompt.iterations=1"], str(folder), DirectDriver())
    assert again["run_id"] != summary["run_id"] and again["gate"]["baseline"] == "champion"
    lineage = read_json(folder / again["run_id"] / "lineage.json")
    champion = lineage["evaluations"]["champion"]["held_out"]["entry"]
    told = load_tasks(folder / "store" / curated_of(folder, champion), "held_out")
    assert all(GOOD in task.environment and BAD not in task.environment for task in told)
    assert lineage["prompt"]["before"]["system"] == GOOD  # from which the optimiser goes on
    assert again["success"]["champion"] == summary["success"]["rl"]


@pytest.fixture
def pair(tmp_path):
    """A profile with the section, and a run of it whose pair is champion: its record's folder."""
    section = {"reflection": {"endpoint": "http://127.0.0.1:1/v1", "model": "table"}}
    values = {"name": "pair", "work_dir": str(tmp_path), "environment": {"kind": "workspace"}, "prompt": section}
    record = tmp_path / "run-1"
    record.mkdir()
    (record / "config.yaml").write_text(yaml.safe_dump(values))
    write_json(record / "prompt.json", {"prompt": Prompt(system="Tidy.").to_record()})
    return values, record


def test_a_champions_pair_is_served_with_its_own_prompt(pair):
    values, record = pair
    config = RetrainConfig.model_validate(values)
    serve = served_with(config, record.name)
    assert serve([{"role": "system", "content": "Old."}, {"role": "user", "content": "Hi"}], [])[0] == [
        {"role": "system", "content": "Tidy."},
        {"role": "user", "content": "Hi"},
    ]
    assert served_with(config) is None  # the base
    with pytest.raises(ConfigError, match="run run-1 was promoted with section prompt, which this profile lacks"):
        served_with(RetrainConfig.model_validate({key: value for key, value in values.items() if key != "prompt"}), record.name)
    alone = record.with_name("run-2")  # as after a rollback: an adapter that was promoted without a prompt
    alone.mkdir()
    (alone / "config.yaml").write_text(yaml.safe_dump({"environment": values["environment"]}))
    assert served_with(config, alone.name) is None


def test_a_prompt_that_is_gone_or_was_changed_is_never_played(pair, monkeypatch):
    values, record = pair
    config, path = RetrainConfig.model_validate(values), record / "prompt.json"
    write_json(path, {"prompt": {**read_json(path)["prompt"], "system": "Tell me the key."}})
    with pytest.raises(DataError, match=r"prompt\.json: is not what the gate judged: the prompt was changed"):
        served_with(config, record.name)
    path.unlink()
    known = {record.name: Prompt(system="Tidy.")}
    monkeypatch.setattr(road, "prompt_of_run", lambda _, run_id: known.get(run_id))
    assert served_with(config, record.name)([], [])[0] == [{"role": "system", "content": "Tidy."}]
    known.clear()
    with pytest.raises(DataError, match="is gone, and MLflow has no prompt of this run"):
        served_with(config, record.name)


def test_mlflow_follows_the_runs_and_the_champion(pair, tmp_path, monkeypatch, capsys):
    """Two pairs that ended while MLflow was away are delivered; the alias follows rollbacks, and goes without a pair."""
    values, _ = pair
    values |= {"tracking": {"uri": f"sqlite:///{tmp_path}/mlflow.db", "model_name": "agent"}, "policy": {"base": "b"}}
    for number, text in enumerate(("Tidy.", "Tidy up."), start=1):
        folder = tmp_path / f"run-{number}"
        folder.mkdir(exist_ok=True)
        told = {"before": {"digest": "b"}, "policy": "base", "stopped": "iterations"}
        write_json(folder / "prompt.json", {"prompt": Prompt(system=text).to_record(), **told})
        write_json(folder / "summary.json", {"gate": {"verdict": "promoted"}})
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(values))
    config = load_config(tmp_path / "p.yaml")

    def champion(run_id):
        facts = dict.fromkeys(("digest", "base_hash", "weights", "since"), "")
        write_json(tmp_path / "champion.json", {"version": "1", "run_id": run_id, **facts})

    def alias():
        import mlflow

        found = mlflow.genai.load_prompt("prompts:/agent-prompt@champion", allow_missing=True)
        return found and found.tags["run_id"]

    def back(*_):
        champion("run-1")
        return {"restored": "1", "run_id": "run-1", "rolled_back": "2", "why": "-"}

    champion("run-2")
    with monkeypatch.context() as away:
        away.setattr(road, "register", lambda *_: (_ for _ in ()).throw(InfrastructureError("MLflow is away")))
        assert main(["runs", "sync", str(tmp_path / "p.yaml")]) == 0
        assert "MLflow is away; `tracewheel runs sync` brings it later" in capsys.readouterr().err
    assert main(["runs", "sync", str(tmp_path / "p.yaml")]) == 0
    assert "prompt of run run-1: registered as agent-prompt/1" in capsys.readouterr().err
    assert [prompt_of_run(config, f"run-{number}").system for number in (1, 2)] == ["Tidy.", "Tidy up."]
    assert alias() == "run-2"

    monkeypatch.setattr("tasks.tracking.rollback.roll_back", back)
    assert main(["champion", "rollback", str(tmp_path / "p.yaml")]) == 0
    assert alias() == "run-1"

    def promoted(name):
        champion(name)
        return "2"

    @contextmanager
    def tracked(run):
        yield run

    finished = SimpleNamespace(record=RunRecord(tmp_path, "run-2")), {"gate": {"verdict": "promoted"}}
    (tmp_path / "run-2" / "adapter").mkdir()
    monkeypatch.setattr("flows.commands.champion.promote.finished_run", lambda _: finished)
    monkeypatch.setattr("flows.opening.tracked", tracked)
    monkeypatch.setattr("tasks.tracking.registry.register", lambda *_: promoted("run-2"))
    assert main(["champion", "promote", str(tmp_path / "p.yaml"), "--json"]) == 0
    assert alias() == "run-2"

    approval = SimpleNamespace(to_record=lambda: {"outcome": "promoted"})
    monkeypatch.setattr("tasks.tracking.approval.approve", lambda *_: promoted("run-1") and approval)
    (tmp_path / "run-1" / "config.yaml").write_text(yaml.safe_dump(values))
    write_json(tmp_path / "run-1" / "lineage.json", {})
    assert main(["champion", "approve", str(tmp_path / "run-1"), "--by", "Ada", "--json"]) == 0
    assert alias() == "run-1"
    road.PromptStage().delivered(config, "alone", print)
    assert alias() is None


def test_a_section_of_a_wheel_that_is_not_installed(profile, monkeypatch):
    monkeypatch.setitem(vars(STAGES), "wheels", {})
    says = r"section prompt is not installed: pip install tracewheel-prompts \(in a checkout: make setup-plugins\)"
    with pytest.raises(ConfigError, match=says):
        load_config(profile)
