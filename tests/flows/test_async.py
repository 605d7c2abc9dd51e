"""Asynchronous training: exact counts, bounded staleness, and in-flight policy changes, even when processes are killed."""

import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import yaml

from flows.retrain import retrain
from tests.flows.conftest import WITHOUT_COMPARISONS
from tracewheel.core.files import read_json, read_table
from tracewheel.core.types import token_versions
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

ITERATIONS, GROUPS, SAMPLES, STALENESS = 4, 4, 4, 2
PATIENCE = 600.0
WORKERS = "SELECT COUNT(*) FROM workers"  # all that ever began
# Slow only in workers: half of the tasks take longer than an update, so that policies change during their episodes.
SLOW_TOOL = """
    import sys
    import time
    from dataclasses import replace

    from tracewheel.environments.workspace.environment import WorkspaceEnvironment

    IN_A_WORKER = any("worker_process" in word for word in sys.orig_argv)


    class SlowWorkspace(WorkspaceEnvironment):
        kind = "slow_workspace:SlowWorkspace"

        def task_from_log(self, prompt, logged):
            return replace(super().task_from_log(prompt, logged), environment=self.kind)

        def reset(self, task):
            super().reset(task)
            self.seconds = 1.5 if int(task.id[-1], 16) % 2 else 0.05

        def step(self, tool, args):
            if IN_A_WORKER:
                time.sleep(self.seconds)
            return super().step(tool, args)
"""


@pytest.fixture(scope="module")
def slow(profile, environment, tmp_path_factory):
    """A short asynchronous profile with slow tools, and the environment in which they can be imported."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow_workspace.py").write_text(textwrap.dedent(SLOW_TOOL))
    values = yaml.safe_load(profile.read_text())
    (logs,) = values["ingest"]["paths"]
    told = Path(logs).read_bytes().replace(b'"kind":"workspace"', b'"kind":"slow_workspace:SlowWorkspace"')
    (folder / "traces.jsonl").write_bytes(told)
    values |= {"ingest": {"paths": [str(folder / "traces.jsonl")]}, "environment": {"kind": "slow_workspace:SlowWorkspace"}}
    values["comparison"] = WITHOUT_COMPARISONS
    values["rollout"] |= {
        "mode": "async",
        "max_staleness": STALENESS,
        "tool_threads": 16,
        "group_size": SAMPLES,
        "max_turns": 6,
    }
    values["training"] |= {"iterations": ITERATIONS, "tasks_per_iteration": GROUPS, "validate_every": 2}
    path = folder / "async.yaml"
    path.write_text(yaml.safe_dump(values))
    return path, environment | {"PYTHONPATH": f"{environment['PYTHONPATH']}:{folder}"}


@pytest.fixture
def fresh(finished_async, tmp_path):
    """A run folder that holds every stage before the loop."""
    folder = tmp_path / "run"
    names = shutil.ignore_patterns(*(f"{stage}-*" for stage in ("collect", "score", "update", "gate")), ".lock")
    shutil.copytree(finished_async[0] / "store", folder / "store", ignore=names)
    return folder


@pytest.fixture
def begin(slow):
    """Starts `tracewheel retrain`; the end of the test kills it if it still runs."""
    path, environment = slow
    started = []

    def start(folder):
        with open(folder.with_suffix(".log"), "a") as log:
            command = [sys.executable, "-m", "flows.cli", "retrain", str(path), "--run-dir", str(folder)]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        started.append(process)
        return process

    yield start
    for process in started:
        kill(process)


@pytest.fixture(scope="module")
def run_it(slow):
    """Runs a command on the profile to its end; returns the JSON that it printed."""
    path, environment = slow

    def run(name, folder, *arguments):
        command = [sys.executable, "-m", "flows.cli", name, str(path), "--run-dir", str(folder), "--json", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode in (0, 3), done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def finished_async(slow, prefect_harness, tmp_path_factory):
    """A complete, uninterrupted asynchronous run, made in this process: its folder and its summary."""
    path, environment = slow
    folder = tmp_path_factory.mktemp("async") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment["PYTHONPATH"])  # of the workers
        patch.syspath_prepend(str(path.parent))
        return folder, retrain(str(path), [], str(folder))


def kill(process):
    """Kill a command; the processes that it started must end soon after."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    for child in alive:
        child.kill()
    assert not alive, "a process outlived the killed command"


def workers_of(process):
    """The living workers of a run."""
    found = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # among them zombie processes
            found += [child] if "tracewheel.rollout.worker_process" in child.cmdline() else []
    return found


def number(folder, query):
    """The result of a query to the queue of a running run; 0 before the queue exists."""
    for path in (folder / "queue").glob("[!.]*.sqlite"):
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(query).fetchone()[0]
    return 0


def wait_for(happened, process):
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, "the run has ended before"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def check_exact(folder, summary):
    """Each order ended once; each trajectory was trained on at most once, and none was too old."""
    (path,) = (folder / "queue").glob("[!.]*.sqlite")
    queue = TrajectoryQueue(path)
    counts = queue.counts()
    assert summary["rollouts"]["rl"].items() >= {"mode": "async", **counts}.items()
    assert counts["issued"] == counts["consumed"] + counts["stale"]
    assert counts["open"] == 0
    assert counts["consumed"] == ITERATIONS * GROUPS
    assert counts["trajectories"] == counts["issued"] * SAMPLES
    trained: Counter = Counter()
    made = read_json(folder / summary["run_id"] / "loop.json")["iterations"]
    assert sorted(made, key=int) == [str(n) for n in range(1, ITERATIONS + 1)]
    for iteration, entries in made.items():
        (collected,) = entries["rollouts"]
        table = read_table(folder / "store" / collected / "trajectories.parquet")
        batch = queue.claimed(int(iteration)).trajectories()
        assert table["id"].tolist() == [trajectory.id for trajectory in batch]
        trained.update(table["id"])
        for turns, mask in zip(table["turns"], table["action_mask"], strict=True):
            versions = [version for version in token_versions(json.loads(turns), len(mask)) if version >= 0]
            assert len(versions) == sum(mask)
            assert all(0 <= int(iteration) - 1 - version <= STALENESS for version in versions)
    assert set(trained.values()) == {1}
    assert len(trained) == ITERATIONS * GROUPS * SAMPLES
    queue.close()
    store = folder / "store"
    assert len(list(store.glob("update-*"))) == len(list(store.glob("collect-*"))) == ITERATIONS, "something was trained twice"
    assert not list(folder.rglob(".partial-*"))


def test_a_run_finishes_and_reports_exact_counts(finished_async):
    folder, summary = finished_async
    check_exact(folder, summary)
    assert summary["episodes"] == ITERATIONS * GROUPS * SAMPLES
    assert "async: issued" in Path(summary["report"]).read_text()
    findings = read_json(folder / summary["run_id"] / "doctor.json")["findings"]
    assert [item["severity"] for item in findings if item["check"] == "stale_adapter"] == ["healthy"]
    assert (folder / summary["run_id"] / "workers" / "rl" / "worker-0.log").is_file()


def test_episodes_continue_under_a_new_policy(finished_async):
    folder, summary = finished_async
    made = read_json(folder / summary["run_id"] / "loop.json")["iterations"]
    metrics = [read_json(folder / "store" / entries["rollouts"][0] / "metrics.json") for entries in made.values()]
    assert sum(found["mixed_episodes"] for found in metrics) > 0
    assert 0 < max(found["staleness_max"] for found in metrics) <= STALENESS


@pytest.mark.slow
def test_a_complete_run_is_reused_and_planned_without_a_worker(finished_async, run_it):
    folder, summary = finished_async
    plan = run_it("retrain", folder, "--dry-run")
    assert plan["complete"]
    assert [stage["results"] for stage in plan["stages"] if stage["stage"] == "collect"] == [ITERATIONS]
    again = run_it("retrain", folder)
    assert set(again["cached"]) == set(again["seconds"])
    for name in ("run_id", "success", "sampled", "gate", "rollouts"):
        assert again[name] == summary[name]


@pytest.mark.slow
def test_counts_stay_exact_after_killing_a_worker_and_the_driver(begin, run_it, fresh):
    folder = fresh
    process = begin(folder)
    wait_for(lambda: number(folder, "SELECT COUNT(*) FROM orders WHERE state = 'leased'"), process)
    (worker,) = workers_of(process)
    worker.kill()
    wait_for(lambda: number(folder, "SELECT COUNT(*) FROM batches") >= 1, process)
    assert workers_of(process) != [worker]
    kill(process)
    process = begin(folder)
    wait_for(lambda: number(folder, "SELECT COUNT(*) FROM batches") >= 2, process)
    kill(process)
    check_exact(folder, run_it("retrain", folder))


@pytest.mark.slow
def test_counts_stay_exact_after_ten_random_kills(begin, run_it, fresh):
    """Kills the worker or the driver, each time after a worker has started since the last kill."""
    rng = random.Random(11)
    folder = fresh
    process, begun = begin(folder), 0
    for _ in range(10):
        wait_for(lambda known=begun: number(folder, WORKERS) > known, process)
        begun = number(folder, WORKERS)
        time.sleep(rng.uniform(0.0, 4.0))
        if rng.random() < 0.5 and (workers := workers_of(process)):
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(workers).kill()
        else:
            kill(process)
            process = begin(folder)
    if process.poll() is None:
        kill(process)
    check_exact(folder, run_it("retrain", folder))
