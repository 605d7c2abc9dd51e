"""A backtest over the logs of the simulated month: three cadences and two gates.

    python benchmarks/backtest_month.py --work runs/backtest-month      # half an hour on two cores

The logs are those of `month.py`, with its empty day, its flipped rewards and its flood. The profile is that of the month with
three iterations a run instead of seven, and a schedule that waits for 120 new tasks. The same command resumes what was cut off.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from month import PROFILE, ROOT, TROUBLE
from month_logs import Sizes, days_of_logs

CHANGES: dict[str, dict[str, Any]] = {
    # Three iterations gain little, which a validation set of 5% of the tasks would not see.
    "curation": {"shares": {"test": 0.35, "validation": 0.1}},
    "training": {"iterations": 3, "validate_every": 3},
    # About as many gates as a branch will have.
    "gate": {"gates_per_year": 8},
}
SCHEDULE = {"min_new_tasks": 120, "cost_per_hour": 1.0}
OPTIONS = ("--from", "2026-10-02", "--to", "2026-10-30", "--cadence", "1d,3d,7d", "--gate", "confidence=0.8,0.9", "--exam", "8")


def write_logs(folder: Path) -> None:
    """A file for each day of the month."""
    folder.mkdir(parents=True, exist_ok=True)
    for day, lines in enumerate(days_of_logs(Sizes(), 0, TROUBLE), 1):
        kept = [] if TROUBLE.get(day) == "empty" else lines
        (folder / f"day-{day:02}.jsonl").write_bytes(b"".join(line + b"\n" for line in kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of logs, profile and results")
    work = parser.parse_args().work.resolve()
    logs, profile = work / "logs", work / "month.yaml"
    write_logs(logs)
    values: dict[str, Any] = json.loads(json.dumps(PROFILE).replace(f"{ROOT}/", ""))  # paths are part of a run's identity
    values |= {section: values[section] | changes for section, changes in CHANGES.items()} | {"schedule": SCHEDULE}
    values |= {"ingest": {"paths": [str(logs)]}, "work_dir": str(work / "run")}
    profile.write_text(yaml.safe_dump(values, sort_keys=False))
    command = [sys.executable, "-m", "flows.cli", "backtest", str(profile), *OPTIONS, "--out", str(work / "backtest")]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
