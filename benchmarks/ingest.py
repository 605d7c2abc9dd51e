"""Reading logs: our reader against orjson alone on the same bytes, the whole ingest, and an ingest of 1% more.

    python benchmarks/ingest.py                                  # three kinds of logs (`ingest_workload.py`), 50 MB each
    python benchmarks/ingest.py --megabytes 200 --kinds words
    python benchmarks/ingest.py --folder LOGS                    # your own, as one more
    python benchmarks/ingest.py --json benchmarks/results/ingest.json

`orjson` parses each line and discards it; `read` also finds the format, checks roles, calls and replies and makes a
`Trace`; `ingest` also redacts, drops duplicates and writes Parquet, as `tracewheel ingest` does: in one process, and in
two, as it does by default from 64 MiB on. `1% more` is a second ingest after the log has grown by 1%. Each side is a process
of its own; sides are interleaved, and the median of CPU seconds counts, without imports; of two processes, all that the second
takes, its start too, and both peaks of memory. The slowest detector and reader are named with their shares. MB are millions of
bytes of the log. Prints JSON and tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingest_workload import LINES, write_log
from measuring import emit, environment, machine, table

SIDES = Path(__file__).parent / "ingest_sides.py"
ORDER = ("orjson", "read", "ingest_unredacted", "ingest", "ingest_two")
LABELS = {
    "orjson": "orjson alone",
    "read": "read: parse, check, Trace",
    "ingest_unredacted": "ingest without redaction",
    "ingest": "ingest, one process",
    "ingest_two": "ingest, two processes",
    "more": "1% more",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--kinds", nargs="*", choices=LINES, default=list(LINES))
    parser.add_argument("--folder", type=Path, help="logs of your own, beside the kinds")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=ORDER, default=list(ORDER))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logs = [measure(kind, arguments) for kind in arguments.kinds]
    if arguments.folder:
        logs.append(measured(arguments.folder.name, arguments.folder, arguments))
    result = {"machine": machine(1), "logs": logs}
    emit(result, tables(logs), arguments.json)


def measure(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All sides on a log of a kind."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        count = write_log(log, arguments.megabytes * 10**6, kind)
        return measured(kind, log, arguments, list(itertools.islice(LINES[kind](count), max(count // 100, 1))))


def measured(name: str, log: Path, arguments: argparse.Namespace, more: list[bytes] | None = None) -> dict[str, Any]:
    """All sides on a log, and on it with some lines more."""
    size = sum(file.stat().st_size for file in (log.rglob("*") if log.is_dir() else [log]) if file.is_file())
    runs: dict[str, list[dict[str, Any]]] = {}
    for repetition in range(arguments.repetitions):
        for side in arguments.sides:
            with tempfile.TemporaryDirectory() as out:
                runs.setdefault(side, []).append(run(side, log, Path(out) / "out"))
                if side == "ingest" and repetition == 0 and more:
                    with log.open("ab") as file:
                        file.writelines(more)
                    runs["more"] = [run(side, log, Path(out) / "out")]
                    os.truncate(log, size)
    found = {side: {key: statistics.median(one[key] for one in these) for key in these[0]} for side, these in runs.items()}
    with tempfile.TemporaryDirectory() as out:
        slowest = run("slowest", log, Path(out) / "out")
    return {"log": name, "bytes": size, "sides": found, "slowest": slowest}


def run(side: str, log: Path, out: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    command = [sys.executable, str(SIDES), side, str(log), str(out)]
    done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout))


def tables(logs: list[dict[str, Any]]) -> str:
    """The results of each side, by log, and the slowest parts."""
    lines = ["", "Shares of one process's time, under a profile:", ""]
    for log in logs:
        parts = "; ".join(f"{part}: {name} {share:.1%}" for part, (name, share) in log["slowest"].items())
        lines.append(f"- {log['log']}: {parts}")
    head = ["log", "MB", "side", "MB/s", "share of orjson's speed", "CPU s", "peak MiB"]
    rows: list[list[Any]] = []
    for log in logs:
        alone = log["sides"].get("orjson", {}).get("cpu_s")
        for side, facts in log["sides"].items():
            seconds = facts["cpu_s"]
            speed = [None, None] if side == "more" else [log["bytes"] / seconds / 1e6, alone / seconds if alone else None]
            rows.append([log["log"], log["bytes"] / 1e6, LABELS[side], *speed, seconds, facts["peak_mib"]])
    return table(head, rows) + "\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
