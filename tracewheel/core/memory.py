"""The main memory of this process and of this machine, in bytes."""

from __future__ import annotations

import ctypes
from pathlib import Path

STATUS, CLEAR, MACHINE = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
# Limit and use under cgroup v2 and v1.
CGROUP_FILES = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
KIB = 1024


def resident() -> int:
    """The memory of this process now."""
    return _field(STATUS, "VmRSS")


def peak_resident() -> int:
    """The most memory that this process has had since its start, or since `reset_peak`."""
    return _field(STATUS, "VmHWM")


def reset_peak() -> None:
    """Begin a new peak; where the system does not allow it, `peak_resident` stays that since the start."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return


def give_back() -> None:
    """Return freed memory to the system.

    GNU's C library keeps what lies between blocks in use: after the passes of a model of 0.1B that was 4 GB. Elsewhere nothing
    is done.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def available(root: Path = CGROUP) -> int | None:
    """What may still be taken: the machine's available memory, or what a cgroup's limit leaves; None where neither is known."""
    free = [_field(MACHINE, "MemAvailable")] if MACHINE.is_file() else []
    for limit, used in CGROUP_FILES:
        try:
            most, now = (root / limit).read_text().strip(), int((root / used).read_text())
        except (OSError, ValueError):
            continue
        if most != "max":
            free.append(max(0, int(most) - now + _reclaimable(root / used)))
    return min(free) if free else None


def _reclaimable(used: Path) -> int:
    """File pages that a cgroup's use counts and the kernel gives up first."""
    try:
        fields = dict(line.split() for line in (used.parent / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("inactive_file", 0))


def _field(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIB
    return 0
