"""The memory of this process and of the machine."""

import sys

import pytest
import torch

from tracewheel.core.machine import available, give_back, peak_resident, reset_peak, resident

MIB = 1 << 20


def test_a_peak_is_seen_after_its_memory_was_given_back():
    reset_peak()
    before = peak_resident()
    torch.ones(64 * MIB).sum()  # 256 MiB
    if peak_resident() - before < 128 * MIB:
        pytest.skip("this system reports no peak")
    assert resident() < before + 200 * MIB < peak_resident()
    reset_peak()
    assert peak_resident() < before + 200 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's C library")
def test_memory_between_blocks_in_use_is_given_back():
    blocks = [bytes([1]) * 100_000 for _ in range(2_000)]  # 200 MB, in blocks that the C library does not map by themselves
    last = blocks[-1]
    del blocks
    before = resident()
    give_back()
    assert resident() < before - 100 * MIB
    assert last[0] == 1


def test_a_cgroups_limit_counts_without_what_it_can_give_up(tmp_path):
    machine = available(tmp_path)
    assert machine > 0
    for name, value in {"memory.max": 300 * MIB, "memory.current": 200 * MIB}.items():
        (tmp_path / name).write_text(f"{value}\n")
    (tmp_path / "memory.stat").write_text(f"anon {150 * MIB}\ninactive_file {50 * MIB}\n")
    assert available(tmp_path) == min(machine, 150 * MIB) or machine < 150 * MIB
    (tmp_path / "memory.max").write_text("max\n")
    assert available(tmp_path) > 150 * MIB or machine < 150 * MIB


def test_the_limit_of_cgroup_v1_counts_too(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(str(100 * MIB))
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text(str(40 * MIB))
    assert available(tmp_path) == 60 * MIB
