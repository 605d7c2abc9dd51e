"""What an update takes whose optimiser steps share out single trajectories, or whole groups (`learner.minibatch_of`).

    python benchmarks/minibatches.py configs/smollm2.yaml --run-dir runs/smollm2 --set seed=0

Repeats the first update of a finished run both ways, in turn, each with a learner that is loaded anew. Prints JSON and a
table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from measuring import Meter, emit, machine, table

from tracewheel.config import UpdateSections, load_config
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import weights_folder
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import SCORES_FILE

UNITS = ("trajectories", "groups")
FIGURES = ("kept_rows", "steps", "loss", "grad_norm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {unit: [] for unit in UNITS}
    figures: dict[str, dict[str, float]] = {}
    for _ in range(arguments.repeats):
        for unit in UNITS:
            config = load_config(arguments.profile, [*arguments.overrides, f"learner.minibatch_of={unit}"])
            with tempfile.TemporaryDirectory() as out, Meter() as meter:
                figures[unit] = update(UpdateSections.of(config), first_update(arguments.run_dir, Path(out)), iteration=1)
            seconds[unit].append(meter.wall_s)
    rows = [
        {"unit": unit, "seconds": statistics.median(seconds[unit]), **{name: figures[unit].get(name) for name in FIGURES}}
        for unit in UNITS
    ]
    lines: list[list[Any]] = [[*row.values()] for row in rows]
    result = {"machine": machine(config.threads), "rows": rows, "ratio": rows[1]["seconds"] / rows[0]["seconds"]}
    emit(result, table(["steps on", "seconds", *FIGURES], lines), arguments.json)


def first_update(run_dir: Path, out: Path) -> UpdateFiles:
    """What the first update of a run reads, with another folder to write to."""
    facts = {path.stem: json.loads(path.read_text()) for path in (run_dir / "store" / ".facts").glob("*.json")}

    def first(stage: str) -> Path:
        found = {name: each["finished"] for name, each in facts.items() if name.startswith(f"{stage}-")}
        return run_dir / "store" / min(found, key=lambda name: found[name])

    start = first("warm_start")
    trajectories, scores = first("rollout") / TRAJECTORIES_FILE, first("score") / SCORES_FILE
    return UpdateFiles([trajectories], [scores], start, weights_folder(start), out)


if __name__ == "__main__":
    main()
