"""The machine and the numeric settings that results to the last bit depend on."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# Set by --unsafe-local: code of agents may run as this user, without a sandbox.
UNSAFE_LOCAL = "TRACEWHEEL_UNSAFE_LOCAL"
# Variables that change what the numeric libraries compute, or in which order. No other variable but the one above is recorded.
NUMERIC_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
)


def machine_record(threads: int | None = None) -> dict[str, Any]:
    """What of this machine results may depend on.

    Machines of one `kind` compute the same bits with the same number of threads: architecture, model of the processor, what
    torch makes of it, and GPUs. The host's name is no part of it. `bubblewrap` is what that says of its version; None without.

    Args:
        threads: torch's threads, as the run sets them.
    """
    torch = _torch()
    return {
        "kind": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "torch_cpu": torch.get("cpu_capability"),
            "gpus": _gpus(),
        },
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": threads,
        "memory_bytes": _memory(),
        "platform": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "byte_order": sys.byteorder,
        "torch": torch,
        "bubblewrap": said_version("bwrap") if shutil.which("bwrap") else None,
        "variables": {name: os.environ[name] for name in (*NUMERIC_VARIABLES, UNSAFE_LOCAL) if name in os.environ},
    }


def said_version(program: str) -> str:
    """What a program says to `--version`; "" where it says nothing in ten seconds."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _torch() -> dict[str, Any]:
    """The version and numeric settings of torch; without torch, nothing."""
    try:
        import torch
    except ImportError:
        return {}
    found: dict[str, Any] = {
        "version": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "interop_threads": torch.get_num_interop_threads(),
    }
    if torch.cuda.is_available():
        found |= {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_deterministic": torch.backends.cudnn.deterministic,
        }
    return found


def _processor() -> str:
    """The model of the processor, as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    """The models of the GPUs, from the driver: to ask torch would open a context on each."""
    models = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found = [line.partition(":")[2].strip() for line in file.read_text(errors="replace").splitlines() if "Model" in line]
        models += found[:1]
    return models


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


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
