"""Measures what the loop learns in a dialogue: the refund desk with its simulated customer, on several seeds.

    python benchmarks/dialogue.py --seeds 0 1 2

Makes the logs and the tiny base if they are not there (the base takes about ten minutes of one thread), runs `tracewheel
retrain` once per seed, and prints JSON and the table of docs/dialogue.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from learning import retrain, table_of

PROFILE = "configs/refund_desk.yaml"
DATA = Path("data/refund_desk")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-dialogue"))
    arguments = parser.parse_args()
    _prepare()
    results = {}
    for seed in arguments.seeds:
        results[str(seed)] = {"run": retrain(PROFILE, seed, arguments.work / f"seed-{seed}"), "controls": {}}
    print(json.dumps(results))
    print(table_of(results))


def _prepare() -> None:
    """Make what the profile reads, as `make demo-refund-desk` does."""
    if not (DATA / "refund_desk.jsonl").exists():
        subprocess.run([sys.executable, "data/make_traces.py", "refund_desk"], check=True)
    if not (DATA / "base").exists():
        command = str(Path(sys.executable).with_name("tracewheel"))
        subprocess.run([command, "base-policy", "configs/refund_desk_base.yaml", "--out", str(DATA / "base")], check=True)


if __name__ == "__main__":
    main()
