"""`dvc.yaml` declares the flow's stages, and makes the same bytes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.retrain import learn
from flows.setup import resolve_config
from tasks.drivers import StoredDriver
from tasks.reading import begin_run
from tracewheel.config import load_config
from tracewheel.core.fingerprint import digest_of

ROOT = Path(__file__).parents[2]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())


@pytest.fixture
def project(tmp_path, environment):
    """A copy of the project whose default profile is a very short one."""
    for name in ("tracewheel", "configs", "data", ".dvc"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
    shutil.copy(ROOT / ".dvcignore", tmp_path)
    values = yaml.safe_load((ROOT / "configs" / "tiny-short.yaml").read_text())
    values["curation"] = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 12, "harder_tasks": 4}
    (tmp_path / "configs" / "tiny.yaml").write_text(yaml.safe_dump(values))
    pipeline = {name: value for name, value in PIPELINE.items() if name != "metrics"}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False))
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "tracewheel"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flows.cli "$@"\n')
    shim.chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)

    def dvc(*arguments):
        path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{environment['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=tmp_path,
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dvc("commit", "--force", "make_traces", "base_policy")
    return tmp_path, dvc


def test_the_pipeline_starts_where_the_default_profile_does():
    declared = {name: value for variable in PIPELINE["vars"] for name, value in variable.items()}
    assert declared["profile"] == "configs/tiny.yaml"
    config = load_config(ROOT / declared["profile"])
    assert declared["start"] == f"data/warm_start/{config.warm_start.demonstrations}"


def test_every_command_of_the_pipeline_parses():
    from flows.cli import build_parser

    stages = [stage.get("do", stage) for stage in PIPELINE["stages"].values()]
    commands = [stage["cmd"] for stage in stages if stage["cmd"].startswith("tracewheel ")]
    assert len(commands) == len(stages) - 1
    for command in commands:
        filled = command.replace("--demonstrations ${item}", "--demonstrations verified")
        filled = re.sub(r"\$\{(item\.policy|item\.policy\.options)\}", "", filled)
        build_parser().parse_args(filled.split()[1:])


def test_the_data_stages_make_the_same_bytes(project, monkeypatch):
    folder, dvc = project
    dvc("repro", "curate")
    monkeypatch.chdir(folder)
    from tracewheel.curation.curate import curate
    from tracewheel.traces.ingest import ingest

    config = load_config("configs/tiny.yaml")
    ingest(config.ingest, folder / "ingested")
    curate(config, folder / "ingested", folder / "curated")
    for name in ("ingested", "curated"):
        assert digest_of(folder / "data" / name) == digest_of(folder / name)
    assert "up to date" in dvc("repro", "curate")


@pytest.mark.slow
def test_the_whole_pipeline_makes_the_same_bytes(project, command, monkeypatch):
    folder, dvc = project
    dvc("repro")
    done = command("retrain", "configs/tiny.yaml", "--run-dir", "flow", cwd=folder)
    assert done.returncode in (0, 3), done.stderr
    monkeypatch.chdir(folder)
    run = begin_run(resolve_config("configs/tiny.yaml", [], "flow"), driver=StoredDriver())
    outcome = learn(run)
    expected = {"ingested": outcome.traces, "curated": outcome.curated}
    expected |= {
        f"warm_start/{kind}": outcome.policies[name].entry
        for kind, name in {"all": "warm_start", "verified": "warm_start_verified"}.items()
    }
    for stage in ("rollout", "score", "update"):
        found = [entry for entry in run.used if entry.stage == stage]
        expected |= {f"rl/{number}/{stage}": entry for number, entry in enumerate(found, start=1)}
    for name, splits in outcome.evaluations.items():
        expected |= {f"evaluation/{name}/{split}": entry for split, entry in splits.items()}
    (gate,) = [entry for entry in run.used if entry.stage == "gate"]
    expected["gate"] = gate
    assert {name: digest_of(folder / "data" / name) for name in expected} == {
        name: entry.digest for name, entry in expected.items()
    }
    assert "up to date" in dvc("repro")
