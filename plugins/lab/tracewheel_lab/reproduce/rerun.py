"""A finished run made again by its own code, in a process of its own, on what the run began with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracewheel import NUMERIC_VARIABLES, DataError, FinishedRun, InfrastructureError, run_named
from tracewheel_lab.reproduce.checkout import PACKAGE

PROFILE, WORK = "profile.yaml", "work"  # what `begin_again` writes
ENTRIES_FILE = "entries.txt"
DONE = (0, 3)
LOOK_SECONDS = 0.5
GRACE_SECONDS = 120
LAST_LINES = 15
ASK_PACKAGES = """
import importlib.metadata as m, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
ASK_MACHINE = "import json; from tracewheel import machine_record; print(json.dumps(machine_record({!r})))"


def make_again(
    run: FinishedRun, out: Path, folder: Path, *, root: Path, python: str, stages: int, say: Callable[[str], None]
) -> FinishedRun:
    """Run `tracewheel retrain` on what `begin_again` wrote, until it ends or has made so many stages; returns its record.

    Args:
        run: The finished run.
        out: The folder of `begin_again`.
        folder: Where to run it.
        root: The folder that holds the package.
        python: The interpreter.
        stages: How many of the run's entries to make; the run is stopped when it asks for the next one.
        say: Gets each line that it says.

    Raises:
        InfrastructureError: it failed; the message has its last lines.
    """
    command = [python, "-m", "flows.cli", "retrain", str(out / PROFILE), "--run-dir", str(out / WORK)]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(run, root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            say(line.rstrip())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        stopped = _watch(process, out / WORK / run.run_id / ENTRIES_FILE, stages, len(run.entries))
    finally:
        _end(process)
        reader.join(timeout=10)
    said = "\n".join(lines[-LAST_LINES:])
    if not stopped and process.returncode not in DONE:
        raise InfrastructureError(f"the run that was made again failed with exit code {process.returncode}:\n{said}")
    if not (out / WORK / run.run_id / ENTRIES_FILE).is_file():
        others = sorted(path.parent.name for path in (out / WORK).glob(f"*/{ENTRIES_FILE}"))
        raise DataError(
            f"the run that was made again has another id ({', '.join(others) or 'none'}): its code reads the profile's "
            "settings or inputs otherwise than the run's did"
        )
    return FinishedRun(run_named(str(out / WORK / run.run_id)))


def _environment(run: FinishedRun, root: Path) -> dict[str, str]:
    """The variables of this process, without Prefect and MLflow servers of the user's, and with the run's numeric settings."""
    users = ("PREFECT_", "MLFLOW_TRACKING", "MLFLOW_REGISTRY")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(users)}
    machine = run.lineage.get("machine") or {}
    if machine:  # a numeric setting of this process that the run did not have would change its bits
        kept = {name: value for name, value in kept.items() if name not in NUMERIC_VARIABLES}
    return {**kept, **(machine.get("variables") or {}), "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}


def _watch(process: subprocess.Popen[str], entries: Path, stages: int, every: int) -> bool:
    """Wait for the end; stop the process when it asks for more than so many stages. Returns whether it was stopped."""
    while process.poll() is None:
        time.sleep(LOOK_SECONDS)
        asked = len(entries.read_text().split()) if entries.is_file() else 0
        if stages < every and asked > stages:
            os.kill(process.pid, signal.SIGTERM)
            return True
    return False


def _end(process: subprocess.Popen[str]) -> None:
    """Let a process that was told to stop do so; kill its group where it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def lineage_here(run: FinishedRun, python: str) -> dict[str, Any]:
    """Packages and machine as they are for the run that was made again, in the form of a lineage."""
    names = sorted(run.lineage.get("packages") or {})
    done = subprocess.run([python, "-c", ASK_PACKAGES, *names], capture_output=True, text=True, check=True)
    found: dict[str, Any] = {"packages": {name: version for name, version in json.loads(done.stdout).items() if version}}
    if run.lineage.get("machine"):
        asked = [python, "-c", ASK_MACHINE.format(run.settings.get("threads"))]
        done = subprocess.run(asked, env=_environment(run, PACKAGE.parent), capture_output=True, text=True, check=True)
        found["machine"] = json.loads(done.stdout.splitlines()[-1])
    return found
