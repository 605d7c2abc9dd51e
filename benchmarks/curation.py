"""Ingest and curation of a log, measured as a whole: speed, memory, and how both grow.

    python benchmarks/curation.py                                  # 10k and 100k traces
    python benchmarks/curation.py --traces 10000 100000 1000000    # about 12 GB on the disk
    python benchmarks/curation.py --json benchmarks/results/curation_speed.json

The log is one of the workspace's deployed agent: four attempts at each task, three tasks per user, true calls and replies, so
that each trace is replayed, verified and compared, each task is probed, and two tasks in five are used. `orjson`
parses the log's lines and discards them; `ingest` and `curate` do what the commands of these names do. Each side is a process
of its own; CPU seconds without imports (except those of workers), MB are millions of bytes of the log. `curate` works in one
process, `curate on all cores` in as many as the command takes. Prints JSON and a table.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ingest_sides import ingest, parse, warm_up
from measuring import Meter, emit, environment, machine, table

SIDES = ("orjson", "ingest", "curate", "curate on all cores")
ATTEMPTS, TASKS_A_USER = 4, 3
SHARES = {"train_tasks": 0.3, "validation_tasks": 0.05, "held_out_tasks": 0.03, "harder_tasks": 0.02}


def lines(traces: int) -> Iterator[bytes]:
    """The lines of a log; equal numbers give equal bytes."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # the repository, for `data`
    from data.workspace_logs import HARDER_TIER, TRAINED_TIERS, log_record
    from tracewheel.environments.workspace.tasks import FAMILIES, make_task
    from tracewheel_projects import log_line

    drawn, time = random.Random(0), datetime(2026, 10, 1, tzinfo=UTC)
    strata = [(family, tier) for tier in (*TRAINED_TIERS, HARDER_TIER) for family in FAMILIES]
    for number in range(traces // ATTEMPTS):
        task = make_task(*strata[number % len(strata)], drawn)
        user = f"user-{number // TASKS_A_USER}"
        for attempt in range(ATTEMPTS):
            time += timedelta(seconds=1)
            yield log_line(log_record(task, user, f"{user}-{attempt}", time, drawn)) + b"\n"


def curate(ingested: Path, out: Path, processes: int | None) -> int:
    """Replay, probe, find copies, split, check, label, write the sets and the report."""
    import pyarrow.dataset

    from tracewheel.config import CurateSections, CurationConfig, EnvironmentConfig, RetrainConfig
    from tracewheel.curation.curate import HowTo, curate
    from tracewheel.traces.ingested_folder import TRACES_FOLDER

    traces = pyarrow.dataset.dataset(ingested / TRACES_FOLDER).count_rows()
    counts = {name: int(share * traces / ATTEMPTS) for name, share in SHARES.items()}
    environment = EnvironmentConfig(kind="workspace")
    profile = RetrainConfig(name="benchmark", environment=environment, curation=CurationConfig(**counts))
    curate(CurateSections.of(profile), ingested, out, how=HowTo(processes=processes))
    return traces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where logs and outputs go (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one[0], Path(arguments.one[1]))))
        return
    sizes = [measure(count, arguments.folder) for count in arguments.traces]
    emit({"machine": machine(1), "sizes": sizes}, shown(sizes), arguments.json)


def measure(count: int, folder: Path | None) -> dict[str, Any]:
    """All sides on one log, one after the other."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        log = Path(scratch) / "log.jsonl"
        with log.open("wb") as file:
            file.writelines(lines(count))
        found = {}
        for side in SIDES:
            command = [sys.executable, __file__, "--one", side, scratch]
            done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{side} ended with {done.returncode}\n{done.stderr[-3000:]}")
            found[side] = json.loads(done.stdout)
        return {"traces": count, "bytes": log.stat().st_size, "sides": found}


def one(side: str, folder: Path) -> dict[str, Any]:
    """One side, in this process."""
    import pandas  # noqa: F401 - imports are not what is measured
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    import tracewheel.curation.curate  # noqa: F401

    log, ingested = folder / "log.jsonl", folder / "ingested"
    work: dict[str, Callable[[], int]] = {
        "orjson": lambda: parse(log, folder),
        "ingest": lambda: ingest(log, ingested),
        "curate": lambda: curate(ingested, folder / "curated", 1),
        "curate on all cores": lambda: curate(ingested, folder / "curated on all cores", None),
    }
    if not side.startswith("curate"):
        warm_up("orjson" if side == "orjson" else "ingest", log)
    with Meter() as meter:
        count = work[side]()
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    facts = {"traces": count, "cpu_s": meter.cpu_s, "wall_s": meter.wall_s}
    return {**facts, "peak_mib": own.ru_maxrss / 1024, "peak_of_a_worker_mib": others.ru_maxrss / 1024}


def shown(sizes: list[dict[str, Any]]) -> str:
    """The results of each side, by size of the log."""
    head = [
        "traces",
        "MB",
        "side",
        "MB/s",
        "traces/s",
        "µs a trace",
        "times orjson's seconds",
        "CPU s",
        "wall s",
        "peak MiB",
        "of a worker",
    ]
    rows: list[list[Any]] = []
    for size in sizes:
        alone = size["sides"]["orjson"]["cpu_s"]
        for side, facts in size["sides"].items():
            seconds = facts["cpu_s"]
            speed = [size["bytes"] / seconds / 1e6, size["traces"] / seconds, seconds / size["traces"] * 1e6, seconds / alone]
            rows.append(
                [
                    size["traces"],
                    size["bytes"] / 1e6,
                    side,
                    *speed,
                    seconds,
                    facts["wall_s"],
                    facts["peak_mib"],
                    facts["peak_of_a_worker_mib"],
                ]
            )
    return table(head, rows)


if __name__ == "__main__":
    main()
