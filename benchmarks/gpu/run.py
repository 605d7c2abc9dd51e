"""What only a GPU can show, in at most eight minutes, as one JSON; each part survives the failure of another.

    python benchmarks/gpu/run.py bundle --out DIR                # packs wheels that a bare machine lacks
    python benchmarks/gpu/run.py run --out gpu.json --wheels DIR # on the machine, in the checkout
    python benchmarks/gpu/run.py run --out gpu.json --small      # every part at a small size on this CPU

The machine has Python 3.12, torch, transformers and peft; neither vLLM, Prefect nor MLflow. No weights are needed: models are
random ones of Qwen3-4B's and Qwen3-0.6B's shape, and the loop plays on `data/base`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS = 480
# Seconds of `SECONDS` that a part may take, in the order in which they run.
PARTS = {"attention": 40, "parity": 60, "throughput": 130, "decode": 70, "kernels": 40, "loop": 80, "trl": 60}
# What the domain imports on the loop's road, and TRL, which a machine for training does not have.
WHEELS = (
    "pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions", "orjson", "rapidfuzz",
    "google-re2", "hyperscan", "phonenumbers", "python-stdnum", "rensa", "gguf", "jsonschema", "jsonschema-specifications",
    "referencing", "rpds-py", "attrs", "filelock", "scipy", "trl", "datasets", "dill", "multiprocess", "xxhash", "fsspec",
)  # fmt: skip
MOST_BYTES = 60 << 20


def bundle(out: Path) -> dict[str, Any]:
    """Download the wheels for Python 3.12 on Linux, at the lock's versions."""
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    out.mkdir(parents=True, exist_ok=True)
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 26, 27, 28)] + ["manylinux2014_x86_64"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        "3.12",
    ]
    command += [part for name in platforms for part in ("--platform", name)]
    wanted = [f"{name}=={pins[name]}" if name in pins else name for name in WHEELS]
    subprocess.run([*command, "--dest", str(out), *wanted], check=True)
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > MOST_BYTES:
        raise SystemExit(f"{out}: {size >> 20} MiB, more than {MOST_BYTES >> 20}: leave wheels out (WHEELS)")
    return {"wheels": len(list(out.iterdir())), "mib": round(size / 2**20, 1)}


def run_all(out: Path, wheels: Path | None, device: str, small: bool, seconds: float) -> dict[str, Any]:
    """Run each part in a process of its own, and write what there is after each."""
    result: dict[str, Any] = {"machine": _machine(device), "small": small, "parts": {}}
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
        # What the machine has goes before what was brought.
        paths = [str(ROOT), str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
        environment = os.environ | quiet | {"PYTHONPATH": os.pathsep.join(paths), "TRACEWHEEL_WHEELS": folder}
        for name, limit in PARTS.items():
            limit = min(limit * seconds / SECONDS, end - time.monotonic())
            result["parts"][name] = _part(name, device, small, limit, environment)
            out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def _part(name: str, device: str, small: bool, limit: float, environment: dict[str, str]) -> dict[str, Any]:
    if limit < 5.0:
        return {"error": "no time left"}
    command = [sys.executable, str(HERE / "run.py"), "part", name, "--device", device, "--seconds", f"{0.6 * limit:.0f}"]
    started = time.monotonic()
    command += ["--small"] if small else []
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"over {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    took = {"seconds": round(time.monotonic() - started, 1)}
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"error": said[-1], "log": done.stderr[-1500:]} | took
    return {"result": json.loads(lines[-1])} | took


def part(name: str, device: str, small: bool, seconds: float) -> Any:
    """One part, in this process."""
    sys.path.append(os.environ.get("TRACEWHEEL_WHEELS", ""))
    import decoding
    import learning

    if name != "attention":
        learning.older_torch()
    if name == "loop":
        return loop(device, small)
    if name in ("throughput", "decode"):
        return {"throughput": learning.throughput, "decode": decoding.decode}[name](device, small, seconds)
    rest = {"attention": decoding.attention, "parity": learning.parity, "kernels": learning.kernels, "trl": learning.trl}
    return rest[name](device, small)


def loop(device: str, small: bool) -> dict[str, Any]:
    """The tiny loop through `examples/loop.py`: its verdict, success before and after, and seconds."""
    import runpy

    sys.path.append(os.environ.get("TRACEWHEEL_WHEELS", ""))
    settings = [f"policy.device={device}", f"training.iterations={1 if small else 12}"]
    profile = "configs/tiny-short.yaml" if small else "configs/tiny.yaml"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "loop"
        sys.argv = ["loop.py", profile, "--out", str(out)]
        sys.argv += [word for setting in settings for word in ("--set", setting)]
        started = time.monotonic()
        printed = sys.stdout
        sys.stdout = sys.stderr  # the last line of the standard output is the part's result
        try:
            runpy.run_path(str(ROOT / "examples/loop.py"), run_name="__main__")
        finally:
            sys.stdout = printed
        wall = time.monotonic() - started
        gate = json.loads((out / "gate" / "gate.json").read_text())
    return {"wall_s": round(wall, 1), "gate": {name: value for name, value in gate.items() if isinstance(value, str | float)}}


def _machine(device: str) -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in ("torch", "transformers", "peft", "triton"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    import torch

    found = torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else device
    return {"device": found, "python": platform.python_version(), "cores": os.cpu_count(), "versions": versions}


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    packing = kinds.add_parser("bundle")
    packing.add_argument("--out", type=Path, required=True)
    whole, one = kinds.add_parser("run"), kinds.add_parser("part")
    whole.add_argument("--out", type=Path, required=True)
    whole.add_argument("--wheels", type=Path, help="what `bundle` wrote")
    one.add_argument("name", choices=PARTS)
    for each in (whole, one):
        each.add_argument("--device", default=None, help="default: cuda, or with --small the CPU")
        each.add_argument("--small", action="store_true")
        each.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    if options.kind == "bundle":
        print(json.dumps(bundle(options.out)))
        return
    device = options.device or ("cpu" if options.small else "cuda")
    if options.kind == "part":
        print(json.dumps(part(options.name, device, options.small, options.seconds)))
        return
    result = run_all(options.out, options.wheels, device, options.small, options.seconds)
    failed = [name for name, found in result["parts"].items() if "error" in found]
    print(json.dumps({"out": str(options.out), "failed": failed}))


if __name__ == "__main__":
    main()
