"""Warns when a benchmark ratio is more than 20% worse than in `regression.json`.

    python benchmarks/check_regression.py            # warns and exits with 0; with --strict exits with 1
    python benchmarks/check_regression.py --write    # stores the measured ratios as the new reference

Runs the quick benchmarks (`rollouts.py --quick`, `environments.py`), which take some minutes. Only ratios
of CPU seconds measured side by side are compared, so they depend little on the machine and its load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from measuring import environment

HERE = Path(__file__).parent
REFERENCE = HERE / "regression.json"
TOLERANCE = 0.2
LOWER_IS_BETTER = {"power of the turns, ours"}
# Those of the reference; another side would cost the most and be compared with nothing.
SIDES = ("ours", "trl", "prefill_each_turn", "prefill_uncounted", "one_go")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    measured = measure()
    if arguments.write:
        REFERENCE.write_text(json.dumps({"date": date.today().isoformat(), "ratios": measured}, indent=2) + "\n")
    reference = json.loads(REFERENCE.read_text())["ratios"]
    fallen = worse(reference, measured)
    print(json.dumps({"measured": measured, "reference": reference, "worse": fallen}, indent=1))
    for name in fallen:
        message = f"{name}: {measured.get(name)} (reference {reference[name]})"
        # GitHub shows the first form next to the change.
        print(f"::warning title=benchmark::{message}" if os.environ.get("GITHUB_ACTIONS") else f"warning: {message}")
    sys.exit(1 if arguments.strict and fallen else 0)


def measure() -> dict[str, float]:
    """The ratios, by name."""
    rollouts, environments = _run("rollouts.py", "--quick", "--sides", *SIDES), _run("environments.py")
    ratios = {name: value for name, value in rollouts["ratios"].items() if name.endswith("tokens per CPU second")}
    steps = {f"workspace {name} over calibration": value for name, value in environments["relative"].items()}
    return ratios | {"power of the turns, ours": rollouts["exponents"]["ours"]} | steps


def worse(reference: dict[str, float], measured: dict[str, float]) -> list[str]:
    """The names whose ratio is missing or more than `TOLERANCE` worse than the reference's."""
    fallen = []
    for name, was in reference.items():
        now = measured.get(name)
        lower = name in LOWER_IS_BETTER
        if now is None or (now > was * (1 + TOLERANCE) if lower else now < was * (1 - TOLERANCE)):
            fallen.append(name)
    return fallen


def _run(script: str, *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, str(HERE / script), *options, "--json", str(out)]
        done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{script} ended with {done.returncode}\n{done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(out.read_text())
    return result


if __name__ == "__main__":
    main()
