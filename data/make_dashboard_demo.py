"""Make the small run folder that the dashboard ships: `python data/make_dashboard_demo.py`, two short trainings.

The first training sees part of the shipped logs and is promoted; the second sees all of them, starts from its champion and
is refused. What only a training needs (weights, optimiser, caches, databases) is left out, and paths and the name of the
machine are replaced. The archive's bytes follow from the run folder's.
"""

from __future__ import annotations

import argparse
import io
import json
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

LOGS = Path("data/traces/workspace.jsonl")
OUT = Path("tracewheel/dashboard/demo_run.tar.xz")
FIRST_LINES = 520
LEFT_OUT = (
    ".prefect",
    ".reuse",
    ".lock",
    "artifacts",
    "mlflow",
    "prefect-server",
    "report.html",
    "quality.html",
    "adapter_model",
    "optimizer.pt",
    "probe.json",
    "environment.txt",
    "/sets/",
    "sampled/trajectories",
)
TEXT = (".json", ".yaml", ".jsonl", ".txt")
LINEAGE = "lineage.json"
PROFILE = {
    "name": "demo",
    "curation": {"train_tasks": 60, "validation_tasks": 16, "held_out_tasks": 60, "harder_tasks": 16},
    "rollout": {"group_size": 8},
    "training": {"iterations": 8, "tasks_per_iteration": 12, "validate_every": 4},
    "evaluation": {"samples": 2, "pass_at": [1, 2]},
    "gate": {"gates_per_year": 2, "confidence": 0.8},
    "comparison": {"warm_starts": "both", "policies": "all", "aa": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="where to train (default: a temporary folder)")
    parser.add_argument("--pack", action="store_true", help="only archive what --work holds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        if not arguments.pack:
            train(work)
        count = pack(work, OUT)
    print(f"{OUT}: {count} files, {OUT.stat().st_size} bytes")


def train(work: Path) -> None:
    """The two trainings, in `work/runs`."""
    logs = work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    values = yaml.safe_load(Path("configs/tiny.yaml").read_text()) | {"name": PROFILE["name"], "ingest": {"paths": [str(logs)]}}
    for section, changed in PROFILE.items():
        if isinstance(changed, dict):
            values[section] = values.get(section, {}) | changed
    values["tracking"] = {"uri": f"sqlite:///{work}/mlflow.db", "model_name": "demo"}
    profile = work / "demo.yaml"
    profile.write_text(yaml.safe_dump(values))
    lines = LOGS.read_bytes().splitlines(keepends=True)
    parts = {"monday.jsonl": lines[:FIRST_LINES], "tuesday.jsonl": lines[FIRST_LINES:]}
    for name, part in parts.items():
        (logs / name).write_bytes(b"".join(part))
        command = [sys.executable, "-m", "flows.cli", "retrain", str(profile), "--run-dir", str(work / "runs")]
        ended = subprocess.run(command, check=False).returncode
        if ended not in (0, 3):
            raise SystemExit(f"the training on {name} ended with {ended}")


def pack(work: Path, out: Path) -> int:
    """Archive the run folder of `work` without what only a training needs; returns the number of files."""
    runs = work / "runs"
    files = [path for path in sorted(runs.rglob("*")) if path.is_file() and not any(word in str(path) for word in LEFT_OUT)]
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for path in files:
            data = path.read_bytes()
            if path.suffix in TEXT:
                data = data.replace(str(work).encode(), b"demo").replace(json.dumps(socket.gethostname()).encode(), b'"demo"')
            if path.name == LINEAGE:
                data = anonymous(data)
            entry = tarfile.TarInfo(str(path.relative_to(runs)))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return len(files)


def anonymous(lineage: bytes) -> bytes:
    """A lineage without the names of branches and remotes."""
    values = json.loads(lineage)
    for place in ("git", "project"):
        if values.get(place):
            values[place] |= {"branch": "main", "remote": None}
    values["machine"]["platform"] = "Linux"
    return json.dumps(values, indent=2).encode() + b"\n"


if __name__ == "__main__":
    main()
