"""The whole loop with rollout workers on a Ray cluster of two nodes as processes, through a kill and the loss of a node."""

import json
import os
import sqlite3
import textwrap
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import yaml

ITERATIONS, GROUPS, SAMPLES, STALENESS = 3, 4, 4, 2
PATIENCE = 900.0
# Slow only in workers, so that a kill hits the middle of a rollout.
SLOW_TOOL = """
    import sys
    import time
    from dataclasses import replace

    from tracewheel.environments.workspace.environment import WorkspaceEnvironment

    IN_A_WORKER = any("default_worker" in word for word in sys.orig_argv)


    class SlowOnRay(WorkspaceEnvironment):
        kind = "slow_on_ray:SlowOnRay"

        def task_from_log(self, prompt, logged):
            return replace(super().task_from_log(prompt, logged), environment=self.kind)

        def step(self, tool, args):
            if IN_A_WORKER:
                time.sleep(0.5)
            return super().step(tool, args)
"""


@pytest.fixture
def slow(profile, environment, monkeypatch, tmp_path):
    """A short asynchronous profile with a slow tool, and the environment in which that can be imported."""
    (tmp_path / "slow_on_ray.py").write_text(textwrap.dedent(SLOW_TOOL))
    values = yaml.safe_load(profile.read_text())
    (logs,) = values["ingest"]["paths"]
    told = Path(logs).read_bytes().replace(b'"kind":"workspace"', b'"kind":"slow_on_ray:SlowOnRay"')
    (tmp_path / "traces.jsonl").write_bytes(told)
    values |= {"ingest": {"paths": [str(tmp_path / "traces.jsonl")]}, "environment": {"kind": "slow_on_ray:SlowOnRay"}}
    values["rollout"] |= {
        "mode": "async",
        "max_staleness": STALENESS,
        "tool_threads": 16,
        "group_size": SAMPLES,
        "max_turns": 6,
    }
    values["training"] |= {"iterations": ITERATIONS, "tasks_per_iteration": GROUPS, "validate_every": ITERATIONS}
    monkeypatch.setitem(environment, "PYTHONPATH", f"{environment['PYTHONPATH']}:{tmp_path}")
    return values


@pytest.fixture
def cluster(slow, environment, two_nodes, monkeypatch):
    """A cluster whose processes have the environment of a user."""
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cluster = two_nodes(cpus=2)
    yield cluster
    cluster.shutdown()


def of_ray(name):
    """Ray's processes of a task or an actor, with the address of the node that they belong to."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        if " ".join(process.info["cmdline"] or []).startswith(f"ray::{name}"):
            raylet = " ".join(process.parent().cmdline())
            found[process] = raylet.partition("--node_ip_address=")[2].split()[0]
    return found


def wait_until(condition, process):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it takes too long"
        assert process.poll() is None, "the run has ended before"
        time.sleep(0.05)
    return found


def first_column(folder, query):
    """The first column of a query to the queue of a running run; empty before the queue exists."""
    found = set()
    for path in (folder / "queue").glob("[!.]*.sqlite"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            found |= {value for (value,) in connection.execute(query)}
    return found


LEASED = "SELECT DISTINCT worker FROM orders WHERE state = 'leased'"
GONE = "SELECT name FROM workers WHERE gone"


@pytest.mark.slow
def test_a_run_survives_a_killed_worker_and_a_lost_node(slow, cluster, spawn, command, tmp_path):
    workers = {"kind": "ray", "address": cluster.address, "count": 2}
    path, folder = tmp_path / "ray.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(slow | {"rollout": slow["rollout"] | {"workers": workers}}))
    process = spawn("retrain", path, "--run-dir", folder, "--json", log=tmp_path / "log")
    wait_until(lambda: len(first_column(folder, LEASED)) == 2, process)
    (owner,) = of_ray("QueueOwner").values()
    away = next(node for node in cluster.list_all_nodes() if node.node_ip_address != owner)
    places = of_ray("rollout worker")
    next(worker for worker, node in places.items() if node == owner or owner not in places.values()).kill()
    wait_until(lambda: first_column(folder, GONE), process)  # its leases are returned
    cluster.remove_node(away, allow_graceful=False)
    wait_until(lambda: len(first_column(folder, GONE)) >= 2, process)
    process.wait(timeout=PATIENCE)
    assert process.returncode in (0, 3), (tmp_path / "log").read_text()[-3000:]

    said = (tmp_path / "log").read_text().splitlines()
    summary = json.loads(next(line for line in reversed(said) if line.startswith("{")))
    (counts,) = summary["rollouts"].values()
    assert counts["issued"] == counts["consumed"] + counts["stale"] + counts["open"]
    assert counts["consumed"] == ITERATIONS * GROUPS
    (queue,) = (folder / "queue").glob("[!.]*.sqlite")
    with closing(sqlite3.connect(queue)) as connection:
        rows = connection.execute("SELECT number, attempt FROM trajectories JOIN orders USING (number, attempt)").fetchall()
        trained = connection.execute(
            "SELECT COUNT(*) FROM trajectories JOIN orders USING (number, attempt) WHERE state = 'consumed'"
        )
        assert trained.fetchone() == (ITERATIONS * GROUPS * SAMPLES,)
    assert set(Counter(rows).values()) == {SAMPLES}
    assert len(rows) == counts["trajectories"]
    assert not of_ray("rollout worker") and not of_ray("QueueOwner")
