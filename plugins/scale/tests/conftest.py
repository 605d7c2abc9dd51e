"""A Ray cluster of two nodes as processes."""

import importlib.util
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[3] / "tests"


def _fixtures_of(*conftests):
    """The fixtures of the core's tests, which this folder does not lie below."""
    for path in conftests:
        spec = importlib.util.spec_from_file_location(f"scale_{path.replace('/', '_')}", TESTS / path / "conftest.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield from (
            (name, value) for name, value in vars(module).items() if type(value).__name__ == "FixtureFunctionDefinition"
        )


globals().update(_fixtures_of(".", "flows", "tasks"))


@pytest.fixture(scope="session")
def two_nodes():
    """Starts a Ray cluster of two nodes as processes, each on its own loopback address."""

    def start(cpus):
        from ray.cluster_utils import Cluster

        node = {"num_cpus": cpus, "num_gpus": 0, "object_store_memory": 80 << 20}
        for tries_left in (2, 1, 0):
            try:
                head = {**node, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
                cluster = Cluster(initialize_head=True, head_node_args=head)
                cluster.add_node(**node, node_ip_address="127.0.0.3")
            except Exception:  # Ray gives a node 30 seconds to start, too little on a machine with much other work
                if not tries_left:
                    raise
            else:
                return cluster
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_enable_metrics_collection", "0")
        patch.setenv("RAY_worker_niceness", "0")  # the default, 15, starves workers on a machine with other work
        yield start
