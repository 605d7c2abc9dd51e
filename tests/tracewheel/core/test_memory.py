"""The memory of this process and of the machine."""

import pytest
import torch

from tracewheel.core.memory import available, peak_resident, reset_peak, resident

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
