"""The record of a run: its settings, starting point and results.

`work_dir/<run id>/` holds `config.yaml` (resolved), `lineage.json` (commit, input digests, package versions) and
`start.json` (champion, evidence, record of splits and task posterior at the start, so that a resumed run sees the same).
`template.json` is the check of the base's chat template.
Reinforcement learning adds `loop.json` (the store entries of each iteration) and `doctor.json` (the doctor's findings); the
end of the run adds `gate.json`, `report.html`, `splits.parquet` and `summary.json`. A run with a summary is complete.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import CURATION_PACKAGES, NUMERIC_PACKAGES, READING_PACKAGES, package_versions
from tracewheel.core.store import PARTIAL, remove, write_whole

CONFIG_FILE, LINEAGE_FILE, START_FILE, SUMMARY_FILE = "config.yaml", "lineage.json", "start.json", "summary.json"
ORCHESTRATION_PACKAGES = ("prefect", "mlflow", "dvc")
PACKAGES = tuple(sorted({*NUMERIC_PACKAGES, *READING_PACKAGES, *CURATION_PACKAGES, *ORCHESTRATION_PACKAGES}))


class RunRecord:
    """Reads and writes the folder of one run; every file is written atomically."""

    def __init__(self, work_dir: Path, run_id: str) -> None:
        self.run_id = run_id
        self.path = work_dir / run_id

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary, or None while the run is incomplete."""
        path = self.path / SUMMARY_FILE
        return read_json(path) if path.is_file() else None

    @property
    def lineage(self) -> dict[str, Any]:
        """Commit, input digests and package versions of a run that was begun."""
        found: dict[str, Any] = read_json(self.path / LINEAGE_FILE)
        return found

    def open(self, config: dict[str, Any], inputs: dict[str, str]) -> None:
        """Delete partial files of a killed process, and write `config.yaml` and `lineage.json` unless they exist."""
        for leftover in self.path.glob(f"{PARTIAL}*"):
            remove(leftover)
        self._keep(CONFIG_FILE, lambda: yaml.safe_dump(config, sort_keys=False))
        self._keep(LINEAGE_FILE, lambda: _json(_lineage(inputs)))

    def start(self, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored starting point; on the first call, the result of `look`, which is stored."""
        self._keep(START_FILE, lambda: _json(look()))
        return read_json(self.path / START_FILE)

    def started(self) -> dict[str, Any] | None:
        """The stored starting point, or None where the run has not started."""
        path = self.path / START_FILE
        return read_json(path) if path.is_file() else None

    def write(self, name: str, value: Any) -> Path:
        """Write a JSON file of the record."""
        write_whole(self.path / name, _json(value))
        return self.path / name

    def _keep(self, name: str, text: Callable[[], str]) -> None:
        if not (self.path / name).is_file():
            write_whole(self.path / name, text())


def find_runs(work_dir: Path) -> list[RunRecord]:
    """The runs in a work folder, latest start first."""
    records = [RunRecord(work_dir, path.parent.name) for path in work_dir.glob(f"*/{LINEAGE_FILE}")]
    return sorted(records, key=lambda record: str(record.lineage["started"]), reverse=True)


def _lineage(inputs: dict[str, str]) -> dict[str, Any]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": _git_state(),
        "inputs": inputs,
        "packages": package_versions(PACKAGES),
    }


def _git_state() -> dict[str, Any] | None:
    """The commit, and whether tracked files differ from it; None outside a repository."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "changed": bool(_git("status", "--porcelain", "--untracked-files=no"))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
