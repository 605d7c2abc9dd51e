"""A virtual environment from the packages that a run recorded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.fingerprint import PACKAGE

LAST_LINES = 12


def build_environment(run: FinishedRun, out: Path) -> Path:
    """Make a virtual environment in `out` with the run's packages; returns its interpreter.

    pip's own settings (`PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`, its files) say where it takes them from.

    Raises:
        DataError: the run recorded no lock, or its Python is not installed.
        InfrastructureError: pip could not install one of the packages.
    """
    lock = (run.lineage.get("environment") or {}).get("file")
    if not lock or not (run.record.path / lock).is_file():
        raise DataError(
            f"{run.record.path}: the run, of an earlier version, recorded no lock of its packages; use --environment here"
        )
    lines = (run.record.path / lock).read_text(encoding="utf-8").splitlines()
    own = [line for line in lines if line.partition("==")[0].strip().lower() != PACKAGE.name]
    out.mkdir(parents=True)
    requirements = out / "requirements.txt"
    requirements.write_text("".join(f"{line}\n" for line in own))
    _call([_python_of(run), "-m", "venv", str(out / "venv")])
    python = out / "venv" / "bin" / "python"
    _call([str(python), "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "-r", str(requirements)])
    return python


def _python_of(run: FinishedRun) -> str:
    version = str((run.lineage.get("machine") or {}).get("python", "")).rpartition(" ")[2]
    name = ".".join(version.split(".")[:2])
    if not name or sys.version.startswith(f"{name}."):
        return sys.executable
    found = shutil.which(f"python{name}")
    if found is None:
        raise DataError(
            f"the run was made with Python {version}, and there is no python{name} here; install it, or use --environment here"
        )
    return found


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).splitlines()[-LAST_LINES:])
        raise InfrastructureError(
            f"{' '.join(command[1:4])}: exit code {done.returncode}; a package that is not in pip's index, such as a build of "
            f"torch for one device, needs PIP_EXTRA_INDEX_URL\n{said}"
        )
