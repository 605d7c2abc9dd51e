"""Rollout workers on a real Ray cluster of two nodes as processes: one is killed, then a whole node is lost."""

import os
import random
import sys
import textwrap
import time
from collections import Counter

import psutil
import pytest

from tasks.engine.fleet import make_fleet
from tracewheel.config import RetrainConfig, WorkerSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.fingerprint import digest_of
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.orders import Order
from tracewheel.rollout.trajectory_queue import TrajectoryQueue
from tracewheel_scale.ray_fleet import run_rollout_worker
from tracewheel_scale.ray_queue import RemoteQueue, absolute

SAMPLES = 2
LONGEST = 300  # seconds allowed for a step of these tests on a busy machine
SLOW_TOOL = """
    import time

    from tracewheel.environments.workspace.environment import WorkspaceEnvironment


    class SlowOnRayFleet(WorkspaceEnvironment):
        kind = "slow_on_ray_fleet:SlowOnRayFleet"

        def step(self, tool, args):
            time.sleep(0.2)
            return super().step(tool, args)
"""


@pytest.fixture(scope="module")
def cluster(two_nodes, tmp_path_factory):
    """A cluster of two nodes with one processor each, joined by this process."""
    import ray

    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "slow_on_ray_fleet.py").write_text(textwrap.dedent(SLOW_TOOL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(plugins), os.getcwd(), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.syspath_prepend(str(plugins))
        cluster = two_nodes(cpus=1)
        where = {"address": cluster.address, "_node_ip_address": "127.0.0.2", "namespace": "tracewheel"}
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()
    sys.modules.pop("slow_on_ray_fleet", None)


@pytest.fixture
def config(base, tmp_path):
    values = {
        "name": "ray",
        "threads": 1,
        "work_dir": str(tmp_path),
        "policy": {"base": base},
        "environment": {"kind": "slow_on_ray_fleet:SlowOnRayFleet"},
        "rollout": {
            "mode": "async",
            "max_staleness": 2,
            "group_size": SAMPLES,
            "max_turns": 6,
            "max_tokens": 400,
            "max_turn_tokens": 48,
            "workers": {"kind": "ray", "address": "auto", "count": 2},
        },
        "training": {"tasks_per_iteration": 6, "iterations": 4},
    }
    return RetrainConfig.model_validate(values)


def orders(count, per_iteration):
    rng = random.Random(5)
    for number in range(count):
        task = make_task(FAMILIES[number % len(FAMILIES)], 2, rng).to_record() | {
            "environment": "slow_on_ray_fleet:SlowOnRayFleet"
        }
        yield Order(number, number // per_iteration + 1, task, False, SAMPLES, 7, 1.0)


def adapter(base, out, version):
    """A fresh adapter of the tiny base."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from tracewheel.policy.adapters import write_adapter

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4))
    write_adapter(model, out, "default", base, version)
    return PolicyRef(base, str(out), version)


def wait_until(condition, fleet=None):
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        if fleet:
            fleet.check()
        time.sleep(0.05)


def worker_processes():
    """Processes that are rollout workers, by the address of their node."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if command.startswith("ray::rollout worker"):
            raylet = " ".join(process.parent().cmdline())
            found["127.0.0.3" if "--node_ip_address=127.0.0.3" in raylet else "127.0.0.2"] = process
    return found


def leased_by(queue):
    """How many orders each worker has."""
    rows = queue._file.read("SELECT worker, COUNT(*) FROM orders WHERE state = 'leased' GROUP BY worker")
    return dict(rows)


def check_counts(queue, *, issued):
    counts = queue.counts()
    assert counts["issued"] - counts["stale"] == issued  # each stale order is issued again
    assert counts["issued"] == counts["open"] + counts["consumed"] + counts["stale"]
    handed_in = counts["done"] + counts["consumed"] + counts["stale"]
    assert counts["trajectories"] == handed_in * SAMPLES
    return counts


@pytest.mark.slow
def test_no_group_is_lost_or_doubled_when_a_worker_is_killed_and_a_node_is_lost(
    cluster, config, base, tmp_path, prefect_harness
):
    wanted, per_iteration = 18, 6
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "test", config.rollout.max_staleness)
    queue.publish(adapter(base, tmp_path / "v0", 0))
    queue.issue(list(orders(wanted, per_iteration)))
    fleet = make_fleet(config, queue, tmp_path / "logs")
    fleet.start()
    try:
        wait_until(lambda: len(leased_by(queue)) == 2 and len(worker_processes()) == 2, fleet)
        worker_processes()["127.0.0.2"].kill()
        before = set(leased_by(queue))
        wait_until(lambda: not before <= set(leased_by(queue)), fleet)  # the dead worker's leases are returned
        taken = claim(queue, 1, per_iteration, 0, fleet)
        queue.publish(adapter(base, tmp_path / "v1", 1))
        wait_until(lambda: "127.0.0.2" in worker_processes(), fleet)  # a new worker has replaced it
        cluster.remove_node(cluster.list_all_nodes()[1], allow_graceful=False)
        taken += claim(queue, 2, per_iteration, 1, fleet)
        queue.publish(adapter(base, tmp_path / "v2", 2))
        taken += claim(queue, 3, per_iteration, 2, fleet)
    finally:
        fleet.stop()
    counts = check_counts(queue, issued=wanted)
    assert (counts["consumed"], counts["open"]) == (wanted, 0)
    assert len({trajectory.id for trajectory in taken}) == len(taken) == wanted * SAMPLES
    assert sorted(Counter(trajectory.group for trajectory in taken).values()) == [SAMPLES] * wanted
    assert {trajectory.stop_reason for trajectory in taken} <= {"finished", "no_tool_call", "max_turns", "max_tokens"}
    # Adapters travel as bytes: workers read them from a folder on their own machine.
    assert (RemoteQueue(None)._adapters / digest_of(tmp_path / "v2")).is_dir()
    wait_until(lambda: not worker_processes())


def claim(queue, iteration, groups, version, fleet):
    wait_until(lambda: queue.claim(iteration, groups, version), fleet)
    return queue.claimed(iteration).trajectories()


def test_a_ray_client_is_refused(config, tmp_path):
    workers = config.rollout.workers.model_copy(update={"address": "ray://head:10001"})
    remote = config.model_copy(update={"rollout": config.rollout.model_copy(update={"workers": workers})})
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "test", 1)
    with pytest.raises(ConfigError, match="Ray client"):
        make_fleet(remote, queue, tmp_path)


def test_a_worker_with_other_code_is_refused(config):
    plain = config.model_copy(update={"environment": config.environment.model_copy(update={"kind": "workspace"})})
    with pytest.raises(ConfigError, match="another version"):
        run_rollout_worker.fn(None, WorkerSections.of(plain).model_dump(mode="json"), "one", code="of yesterday")


def test_paths_of_a_policy_are_absolute(base, tmp_path):
    (tmp_path / "base").mkdir()
    assert absolute(PolicyRef("base", "state/adapter", 3), tmp_path) == PolicyRef(
        str(tmp_path / "base"), str(tmp_path / "state/adapter"), 3
    )
    assert absolute(PolicyRef("owner/model"), tmp_path) == PolicyRef("owner/model")
