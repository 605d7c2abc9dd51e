"""The files whose code is in each stage's key, before and after kinds are found by name; writes a table.

    python benchmarks/stage_keys.py CHECKOUT

CHECKOUT is a working folder of commit d233df6, before the change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tasks.engine.stage_code import TASKS
from tracewheel.config import load_config

ROOT = Path(__file__).parents[1]
OUT = Path(__file__).parent / "results" / "stage_keys.md"
PROFILES = ("tiny-short", "tiny-harness", "refund_desk")
BEFORE = """
import json
from tasks.stage_code import STAGES
from tracewheel.core.fingerprint import code_files
print(json.dumps({task.stage: len(code_files(task.code)) for task in STAGES}))
"""


def main(checkout: Path) -> None:
    """Count and write."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    before: dict[str, int] = json.loads(done.stdout)
    after = {name: _counts(ROOT / "configs" / f"{name}.yaml") for name in PROFILES}
    lines = [
        "# Files in each stage's key",
        "",
        "Made by `benchmarks/stage_keys.py`. Before: commit d233df6, whatever the profile names. After: by profile.",
        "",
        f"| stage | before | {' | '.join(PROFILES)} |",
        f"|---|---:|{'---:|' * len(PROFILES)}",
    ]
    lines += [
        f"| {stage} | {before.get(stage, '')} | {' | '.join(str(after[name][stage]) for name in PROFILES)} |" for stage in TASKS
    ]
    OUT.write_text("\n".join(lines) + "\n")


def _counts(profile: Path) -> dict[str, int]:
    config = load_config(profile)
    # One part is the version of the records, which is no file.
    return {stage: len(task.code_parts(config)) - 1 for stage, task in TASKS.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
