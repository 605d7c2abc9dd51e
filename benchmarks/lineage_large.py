"""Time of `tracewheel lineage` on a large store, made of a finished run's: 300 entries and 100,000 traces.

    python benchmarks/lineage_large.py configs/tiny.yaml --work runs --place /tmp/large --out lineage_large.json

The traces, their places, episodes and tasks of the run are repeated under other ids and users; rollouts and scores
are copied as further entries that were made from the same ones. It measures the command in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from measuring import Meter, machine

TRACES, ENTRIES = 100_000, 300


def enlarge(work: Path, place: Path) -> dict[str, int]:
    """Copy a work folder's runs and store, and make them large."""
    shutil.copytree(work, place, symlinks=True, ignore=shutil.ignore_patterns(".prefect", "ingested", "mlflow*"))
    store = place / "store"
    (ingested,), (curated,) = store.glob("ingest-*"), store.glob("curate-*")
    parts = pd.read_parquet(ingested / "traces.parquet")
    times = TRACES // len(parts) + 1
    for part in (ingested / "traces.parquet").glob("*.parquet"):
        part.unlink()
    repeated(parts, times, ["id", "session", "user"]).to_parquet(ingested / "traces.parquet" / "part-00000.parquet")
    for name, columns in (("episodes.parquet", ["trace_id", "task_id"]), ("tasks.parquet", ["id"])):
        file = curated / name
        repeated(pd.read_parquet(file), times, columns).to_parquet(file)
    extra = [path for path in sorted(store.glob("*-*")) if path.name.startswith(("rollout-", "score-"))]
    made = sum(path.is_dir() for path in store.glob("*-*"))
    for number in range(ENTRIES - made):
        source = extra[number % len(extra)]
        name = f"{source.name.partition('-')[0]}-{number:016x}"
        shutil.copytree(source, store / name)
        shutil.copyfile(store / ".facts" / f"{source.name}.json", store / ".facts" / f"{name}.json")
    entries = sum(path.is_dir() for path in store.glob("*-*"))
    return {"traces": len(parts) * times, "entries": entries}


def repeated(frame: pd.DataFrame, times: int, columns: list[str]) -> pd.DataFrame:
    """The rows again and again; from the second time on with a number behind the values of some columns."""
    copies = [frame]
    for number in range(1, times):
        copies.append(frame.assign(**{name: frame[name] + f"-{number}" for name in columns}))
    return pd.concat(copies, ignore_index=True)


def timed(*arguments: str) -> tuple[dict[str, float], dict[str, Any]]:
    """CPU and wall seconds of a command in a process of its own, and what it says."""
    command = [sys.executable, "-m", "flows.cli", *arguments, "--json"]
    with Meter() as meter:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"cpu": round(meter.cpu_s, 2), "wall": round(meter.wall_s, 2)}, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--work", required=True)
    parser.add_argument("--place", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    place = Path(options.place)
    sizes = enlarge(Path(options.work), place)
    (run,) = [path.parent.name for path in place.glob("*/summary.json")]
    rows = {}
    for name, words in {
        "adapter": (run,),
        "adapter, all traces": (run, "--limit", "0"),
        "a user of one trace": ("user-301", "--as", "user"),
        "a user of many": ("user-003", "--as", "user"),
    }.items():
        rows[name], said = timed("lineage", options.profile, *words, "--run-dir", str(place))
        print(name, rows[name], len(json.dumps(said)), flush=True)
    Path(options.out).write_text(json.dumps({"machine": machine(1), **sizes, "seconds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
