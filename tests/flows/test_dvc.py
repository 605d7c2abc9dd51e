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
from tasks.run import Run
from tracewheel.config import load_config
from tracewheel.core.fingerprint import digest_of
from tracewheel.sampling.schedule import validates

ROOT = Path(__file__).parents[2]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())


def variables(training, start):
    """The variables of `dvc.yaml` for a profile's training settings."""
    numbers = range(1, training.iterations + 1)
    validated = [number for number in numbers if validates(training, number)]
    candidates = [f"data/validation/warm_start_verified={start}"]
    candidates += [f"data/validation/rl-{number}=data/rl/{number}/update" for number in validated]
    return {
        "start": start,
        "iterations": [{"number": n, "before": start if n == 1 else f"data/rl/{n - 1}/update"} for n in numbers],
        "validated": validated,
        "candidates": " ".join(candidates),
    }


@pytest.fixture
def project(tmp_path, environment):
    """A copy of the project with a very short profile in the place of the default one."""
    for name in ("tracewheel", "configs", "data", ".dvc"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
    shutil.copy(ROOT / ".dvcignore", tmp_path)
    values = yaml.safe_load((ROOT / "configs" / "tiny-short.yaml").read_text())
    values["curation"] = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 12, "harder_tasks": 4}
    (tmp_path / "configs" / "tiny.yaml").write_text(yaml.safe_dump(values))
    config = load_config(tmp_path / "configs" / "tiny.yaml")
    pipeline = dict(PIPELINE)
    pipeline["vars"] = [{"profile": "configs/tiny.yaml"}]
    pipeline["vars"] += [{name: value} for name, value in variables(config.training, "data/warm_start/verified").items()]
    pipeline.pop("metrics")
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


def test_the_pipeline_has_the_default_profiles_iterations():
    declared = {name: value for variable in PIPELINE["vars"] for name, value in variable.items()}
    profile = declared.pop("profile")
    assert profile == "configs/tiny.yaml"
    config = load_config(ROOT / profile)
    assert declared == variables(config.training, f"data/warm_start/{config.warm_start.demonstrations}")


def test_every_command_of_the_pipeline_is_one_of_ours():
    from flows.cli import build_parser

    stages = [stage.get("do", stage) for stage in PIPELINE["stages"].values()]
    commands = [stage["cmd"] for stage in stages if stage["cmd"].startswith("tracewheel ")]
    assert len(commands) == len(stages) - 1
    for command in commands:
        filled = re.sub(r"\$\{item\.number\}", "1", command).replace("--demonstrations ${item}", "--demonstrations verified")
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
    done = command("retrain", "configs/tiny.yaml", "--run-dir", "runs", cwd=folder)
    assert done.returncode in (0, 3), done.stderr
    monkeypatch.chdir(folder)
    run = Run.of(resolve_config("configs/tiny.yaml", [], "runs"), driver=StoredDriver())
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
