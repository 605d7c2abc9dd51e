"""Workers as processes: killed ones are replaced, repeated deaths end the run, none is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tracewheel.config import WorkerSections
from tracewheel.core.errors import InfrastructureError, InputError
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.fleet import MOST_DEATHS, LocalFleet
from tracewheel.rollout.orders import Order
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

SAMPLES = 2
PATIENCE = 400.0


@pytest.fixture
def profile(config):
    rollout = config.rollout.model_copy(update={"mode": "async", "group_size": SAMPLES, "max_turns": 4})
    training = config.training.model_copy(update={"tasks_per_iteration": 8})
    return WorkerSections.of(config.model_copy(update={"rollout": rollout, "training": training}))


@pytest.fixture
def queue(tmp_path, base, adapter):
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "run", max_staleness=1)
    queue.publish(PolicyRef(base, str(adapter), 0))
    return queue


@pytest.fixture
def fleet(queue, profile, tmp_path):
    fleet = LocalFleet(profile, queue, tmp_path / "logs")
    yield fleet
    fleet.stop()


def wait_for(happened, meanwhile=lambda: None):
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        meanwhile()
        time.sleep(0.02)


def test_a_killed_worker_is_replaced_and_its_orders_are_done_once(queue, fleet, tasks):
    made = [
        Order(n, 1 + n // 8, tasks[n % len(tasks)].to_record(), variant=False, samples=SAMPLES, seed=n, temperature=1.2)
        for n in range(16)
    ]
    queue.issue(made)
    fleet.start()
    (first,) = fleet.pids()
    wait_for(lambda: queue.counts()["leased"] > 0)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: queue.handed_in() == len(made), fleet.check)
    assert list(fleet.pids()) != [first]
    counts = queue.counts()
    assert (counts["issued"], counts["done"], counts["trajectories"]) == (16, 16, 16 * SAMPLES)
    alive = [psutil.Process(pid) for pid in fleet.pids()]
    fleet.stop()
    assert not any(process.is_running() for process in alive)
    assert queue.counts()["leased"] == 0
    fleet.stop()


def test_repeated_deaths_end_the_run_with_the_end_of_the_log(queue, fleet, monkeypatch):
    queue._file.read("DELETE FROM policies")  # without a published policy a worker dies at its start
    fleet.start()
    message = f"(?s)died {MOST_DEATHS} times without handing anything in.*worker-0.log ends:.*no policy has been"
    with pytest.raises(InfrastructureError, match=message):
        wait_for(lambda: False, fleet.check)


def test_a_worker_with_bad_input_is_not_restarted(queue, fleet, tmp_path):
    queue.publish(PolicyRef(str(tmp_path / "nowhere"), None, 1))
    fleet.start()
    (first,) = fleet.pids()
    with pytest.raises(InputError, match="rollout worker: DataError: .*nowhere"):
        wait_for(lambda: False, fleet.check)
    assert list(fleet.pids()) == [first]


def test_workers_end_with_their_parent(queue, profile, tmp_path):
    """The parent is killed and cannot tell them."""
    code = (
        "import sys, time; from pathlib import Path; from tracewheel.config import WorkerSections;"
        "from tracewheel.rollout.fleet import LocalFleet; from tracewheel.rollout.trajectory_queue import TrajectoryQueue;"
        "profile = WorkerSections.model_validate_json(Path(sys.argv[1]).read_text());"
        "fleet = LocalFleet(profile, TrajectoryQueue(Path(sys.argv[2])), Path(sys.argv[3]));"
        "fleet.start(); print(*fleet.pids(), flush=True); time.sleep(600)"
    )
    path = tmp_path / "profile.yaml"
    path.write_text(profile.model_dump_json())
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(queue.path), str(tmp_path / "logs")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    worker = psutil.Process(int(parent.stdout.readline()))
    try:
        time.sleep(1.0)  # the worker may still be importing; it ends anyway
        parent.kill()
        parent.wait()
        worker.wait(timeout=60)
        assert not worker.is_running()
    finally:
        parent.stdout.close()
        for process in (parent, worker):
            if process.is_running() if process is worker else process.poll() is None:
                process.kill()
