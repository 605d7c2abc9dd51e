"""Reading logs: our reader against orjson alone on the same bytes, the whole ingest, and an ingest of 1% more.

    python benchmarks/ingest.py                                  # 10k and 100k traces
    python benchmarks/ingest.py --traces 10000 100000 1000000    # about 4 GB on the disk
    python benchmarks/ingest.py --json benchmarks/results/ingest.json

`orjson` parses each line and discards it; `read` also finds the format, checks roles, calls and replies and makes a
`Trace`; `ingest` also redacts, drops duplicates and writes Parquet, as `tracewheel ingest` does. `1% more` is a
second ingest after the log has grown by 1%. Each side is a process of its own; sides are interleaved, and the
median of CPU seconds counts, without imports. MB are millions of bytes of the log. Prints JSON and tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingest_workload import lines, write_log
from measuring import emit, environment, machine, table

SIDES = Path(__file__).parent / "ingest_sides.py"
ORDER = ("orjson", "read", "ingest_unredacted", "ingest")
LABELS = {
    "orjson": "orjson alone",
    "read": "read: parse, check, Trace",
    "ingest_unredacted": "ingest without redaction",
    "ingest": "ingest",
    "more": "1% more",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=ORDER, default=list(ORDER))
    parser.add_argument("--folder", type=Path, help="where logs and outputs go (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = [measure(count, arguments) for count in arguments.traces]
    result = {"machine": machine(1), "sizes": sizes}
    emit(result, tables(sizes), arguments.json)


def measure(count: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """All sides on one log. A large log is measured once, because it takes minutes."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        log = Path(folder) / "log.jsonl"
        size = write_log(log, count)
        runs: dict[str, list[dict[str, Any]]] = {}
        for repetition in range(arguments.repetitions if count <= 100_000 else 1):
            for side in arguments.sides:
                out = Path(folder) / f"out-{side}-{repetition}"
                runs.setdefault(side, []).append(run(side, log, out))
                if side == "ingest" and repetition == 0:
                    with log.open("ab") as file:
                        file.writelines(lines(count // 100, first=count))
                    runs["more"] = [run(side, log, out)]
                    with log.open("ab") as file:
                        file.truncate(size)
                shutil.rmtree(out, ignore_errors=True)
        found = {side: {key: statistics.median(one[key] for one in these) for key in these[0]} for side, these in runs.items()}
    return {"traces": count, "bytes": size, "sides": found}


def run(side: str, log: Path, out: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    command = [sys.executable, str(SIDES), side, str(log), str(out)]
    done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout))


def tables(sizes: list[dict[str, Any]]) -> str:
    """The results of each side, by size of the log."""
    head = ["traces", "MB", "side", "MB/s", "traces/s", "µs a trace", "share of orjson's speed", "CPU s", "peak MiB"]
    rows: list[list[Any]] = []
    for size in sizes:
        alone = size["sides"].get("orjson", {}).get("cpu_s")
        for side, facts in size["sides"].items():
            speed: list[Any] = [None] * 4
            if side != "more":
                seconds = facts["cpu_s"]
                share = alone / seconds if alone else None
                speed = [size["bytes"] / seconds / 1e6, size["traces"] / seconds, seconds / size["traces"] * 1e6, share]
            rows.append([size["traces"], size["bytes"] / 1e6, LABELS[side], *speed, facts["cpu_s"], facts["peak_mib"]])
    return table(head, rows)


if __name__ == "__main__":
    main()
