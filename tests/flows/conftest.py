"""Shared by the flow tests: a very short profile and one finished run of it."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from tracewheel.core.store import Store

ROOT = Path(__file__).parents[2]
# For runs in which nothing is asserted of the policies that are evaluated for comparison alone: they are half of a short run.
WITHOUT_COMPARISONS = {"warm_starts": "one", "policies": "gate", "aa": False}


@pytest.fixture(scope="session")
def profile(base, tmp_path_factory):
    """The shipped short profile, made shorter, with paths that hold from anywhere."""
    values = yaml.safe_load((ROOT / "configs" / "tiny-short.yaml").read_text())
    values["ingest"] = {"paths": [str(ROOT / "data" / "traces" / "workspace.jsonl")]}
    values["policy"] = {"base": base}
    values["curation"] = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 12, "harder_tasks": 4}
    values["warm_start"] |= {"replay": {"path": f"{base}/replay.parquet", "share": 0.1}}
    values["learner"] = values.get("learner", {}) | {"replay_path": f"{base}/replay.parquet", "replay_rows": 4}
    values["gate"] = {"min_pairs": 5}
    path = tmp_path_factory.mktemp("profile") / "short.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="session")
def environment():
    """The environment of a user who has set nothing for Prefect."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def command(environment):
    """Runs `tracewheel` to its end in a separate process."""

    def run(*arguments, cwd=ROOT):
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *map(str, arguments)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )

    return run


@pytest.fixture
def run(capsys):
    """Runs a command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        from flows.cli import main

        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def spawn(environment):
    """Starts `tracewheel` in a separate process; the end of the test kills it if it still runs."""
    started = []

    def start(*arguments, log, cwd=ROOT):
        with open(log, "w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *map(str, arguments)],
                cwd=cwd,
                env=environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        started.append(psutil.Process(process.pid))
        return process

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


@pytest.fixture(scope="session")
def timed(profile, command, tmp_path_factory):
    """A complete run by the command line: its folder, the ended process, the output of `--json`, and its seconds."""
    folder = tmp_path_factory.mktemp("finished")
    started = time.monotonic()
    done = command("retrain", profile, "--run-dir", folder, "--json")
    assert done.returncode in (0, 3), done.stderr
    return folder, done, json.loads(done.stdout), time.monotonic() - started


@pytest.fixture(scope="session")
def finished(timed):
    """A complete run by the command line: its folder, the ended process, and the output of `--json`."""
    return timed[:3]


@pytest.fixture(scope="session")
def entries():
    """The digests of all complete entries of a run folder, checked against their bytes."""

    def read(folder):
        store = Store(folder / "store")
        names = [path.name for path in store.root.iterdir() if path.is_dir() and not path.name.startswith(".")]
        found = {name: store.find(*name.rsplit("-", 1)) for name in names}
        return {name: entry and entry.digest for name, entry in found.items()}

    return read
