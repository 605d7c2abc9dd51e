"""`examples/loop.py`: the loop by public functions alone writes what a run stores, to the byte."""

import subprocess
import sys
from pathlib import Path

from tracewheel.core.fingerprint import digest_of

ROOT = Path(__file__).parents[2]
LOOP = """
import runpy, sys
runpy.run_path("examples/loop.py", run_name="__main__")
print("loaded:", *sorted({"prefect", "mlflow", "dvc", "flows", "tasks"} & set(sys.modules)))
"""


def test_the_loop_in_one_file_writes_the_folders_of_a_run(finished, profile, entries, environment, tmp_path):
    folder, _, summary = finished
    out = tmp_path / "loop"
    command = [sys.executable, "-c", LOOP, str(profile), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
    made = [out / "ingested", out / "curated", out / "gate", *sorted((out / "warm_start").iterdir())]
    made += [stage for iteration in sorted((out / "iterations").iterdir()) for stage in sorted(iteration.iterdir())]
    made += [*sorted((out / "validation").iterdir()), *sorted((out / "held_out").iterdir())]
    assert len(made) >= 15
    stored = set(entries(folder).values())
    assert [str(each.relative_to(out)) for each in made if digest_of(each) not in stored] == []
    assert f"gate: {summary['gate']['verdict']}" in done.stdout
