"""The type of a policy's weights where the profile says `auto`.

bfloat16 where the hardware multiplies it and the base is large enough to gain: on a CPU with AVX512-BF16 a pass of a
0.1B model takes a third of the time, and at any size half of the memory. Small bases stay in float32: they gain little,
and their adapters can be merged, which bfloat16 would round away. Adapters, optimiser and sums are float32 in any case.
"""

from __future__ import annotations

import functools
import json
import math
import platform
from pathlib import Path

SMALL = 50_000_000  # parameters; the smallest language models in use have 100M and more
CPU_FLAGS = {"avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX", "bf16": "Arm BF16"}


def choose_dtype(base: str, device: str) -> tuple[str, str]:
    """`float32` or `bfloat16` for a base on a device, and why.

    Equal on equal machines: a base that is not a local folder counts as large, downloaded or not.
    """
    if not base:
        return "float32", "no base"
    count = parameter_count(base)
    if count is not None and count < SMALL:
        return "float32", f"the base is small ({count / 1e6:.1f}M parameters)"
    where, supported = ("this GPU", _gpu_multiplies()) if device != "cpu" else ("this processor", _cpu_multiplies())
    if not supported:
        return "float32", f"{where} does not multiply bfloat16"
    return "bfloat16", f"{where} multiplies it ({supported}); LoRA, optimiser and sums stay float32"


def dtype_line(base: str, device: str, dtype: str) -> str:
    """One line for the start of a run: the type, and why."""
    chosen, why = choose_dtype(base, device)
    return f"policy.dtype: {dtype}, " + (why if chosen == dtype else f"as the profile says (auto: {chosen}, {why})")


def parameter_count(base: str) -> int | None:
    """The parameters in a local folder's safetensors files; None if it has none or is no folder."""
    files = sorted(Path(base).glob("*.safetensors")) if Path(base).is_dir() else []
    try:
        return sum(_count(file) for file in files) if files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a damaged file is reported where the base is loaded


def _count(file: Path) -> int:
    """From the header: 8 bytes with its length, then JSON."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


@functools.lru_cache(maxsize=1)
def _cpu_multiplies() -> str:
    """The processor's instructions for products in bfloat16; empty if it has none that we know how to find."""
    info = Path("/proc/cpuinfo")
    if platform.system() != "Linux" or not info.is_file():
        return ""
    lines = [line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))]
    found = set(lines[0].split()) if lines else set()
    return ", ".join(name for flag, name in CPU_FLAGS.items() if flag in found)


def _gpu_multiplies() -> str:
    import torch

    if not torch.cuda.is_available():
        return "as GPUs since 2020 do; none is visible here"
    return torch.cuda.get_device_name() if torch.cuda.is_bf16_supported(including_emulation=False) else ""
