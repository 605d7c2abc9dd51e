"""vLLM in process: its memory over many adapters, and the limit on adapters in use. The rest is in the contract."""

import gc
import os

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.engines.base import Request, Sampling

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def vllm(kind_of):
    return kind_of("vllm")


def test_twenty_versions_leave_no_memory_behind(vllm, versions, base):
    """Memory after the 21st and 23rd change against memory after the first and third."""
    psutil = pytest.importorskip("psutil")
    process = psutil.Process(os.getpid())
    policies = [versions.policy(version) for version in range(1, 24)]
    engine, openings, resident, memory = vllm.engine(policies[0]), vllm.openings(16), [], []
    for swap, policy in enumerate(policies):
        engine.update_weights(policy)
        vllm.submit(engine, {100 * swap + n: ids for n, ids in openings.items()}, budget=24)
        for n, turn in vllm.finish(engine, len(openings)).items():
            assert set(turn.versions) == {policy.version}
            if n % 100 < 4:
                assert versions.worst_difference(openings[n % 100], turn) < 1e-4
            engine.close(n)
        gc.collect()
        resident.append(len(vllm.core(base).resident))
        memory.append(process.memory_info().rss)
    assert max(resident) <= 3
    assert memory[20] < 1.02 * memory[0]
    assert memory[22] < 1.02 * memory[2]


def test_more_adapters_in_use_than_vllm_holds_are_refused(vllm, versions):
    engine = vllm.engine(versions.policy(1), Sampling(greedy=True))
    vllm.submit(engine, vllm.openings(1), budget=300)
    with pytest.raises(ConfigError, match="adapters are in use"):
        for n in range(1, 6):
            engine.submit(Request(n, [1, 2, 3], 300, policy=versions.policy(n + 1)))
    for session in range(n):  # the last was refused
        engine.close(session)
