"""`lineage.json` of a run: what it was made with and from. What is kept elsewhere is named with its digest, not copied.

At the start: `started`, `git` (of the code; null outside a repository), `project` (of the working folder, where that is another
repository), `inputs` (digests), `packages` (versions of those that results depend on), `environment` (the file with all of
them), `machine`, `config`, `snapshot`, and what the caller adds (seeds, base model, DVC). `resumed` lists later starts with
other code, packages or machine. At the end of a run the caller adds its results (`tasks/closing/lineage.py`).

A run of an earlier version has `started`, `git`, `inputs` and `packages` only, and no `schema`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tracewheel.core import clock
from tracewheel.core.code_state import code_state, dirty_diff, installed_packages, lock_text
from tracewheel.core.fingerprint import (
    CURATION_PACKAGES,
    NUMERIC_PACKAGES,
    PACKAGE,
    READING_PACKAGES,
    digest_file,
    package_versions,
)
from tracewheel.core.machine import machine_record
from tracewheel.core.store import write_whole

SCHEMA = 2
ENVIRONMENT_FILE, DIFF_FILE, PROJECT_DIFF_FILE = "environment.txt", "code.diff", "project.diff"
ORCHESTRATION_PACKAGES = ("prefect", "mlflow", "dvc")
PACKAGES = tuple(sorted({*NUMERIC_PACKAGES, *READING_PACKAGES, *CURATION_PACKAGES, *ORCHESTRATION_PACKAGES}))
KEPT = ("config.yaml", "snapshot.json")
# What a resumed run may differ in.
STATES = ("git", "project", "environment", "machine")


def lineage_of_start(record: Path, inputs: dict[str, str], config: dict[str, Any], made_with: dict[str, Any]) -> dict[str, Any]:
    """The lineage of a run that begins; writes `environment.txt` and the diffs beside it.

    Args:
        record: The run's folder.
        inputs: Digests of its inputs.
        config: The resolved profile.
        made_with: Further keys.
    """
    state = _State.now(config.get("threads"))
    state.write(record)
    return {
        "schema": SCHEMA,
        "started": _now(),
        **state.values,
        "inputs": inputs,
        "packages": package_versions(PACKAGES),
        "files": {name: digest_file(record / name) for name in KEPT if (record / name).is_file()},
        **made_with,
        "resumed": [],
    }


def note_resumed(record: Path, lineage: dict[str, Any], *, threads: int | None) -> None:
    """Add a later start to the lineage of a run, where it has other code, packages or machine than the last one."""
    if lineage.get("schema") != SCHEMA:
        return
    before = lineage["resumed"][-1] if lineage["resumed"] else lineage
    state = _State.now(threads, f"-{len(lineage['resumed']) + 1}")
    if any(_comparable(state.values[name]) != _comparable(before[name]) for name in STATES):
        state.write(record)
        resumed = [*lineage["resumed"], {"at": _now(), **state.values}]
        write_whole(record / "lineage.json", json.dumps({**lineage, "resumed": resumed}, indent=2) + "\n")


class _State:
    """Code, packages and machine as they are now; `files` holds what of them is kept in files of its own.

    Args:
        number: Goes into the names of the files.
    """

    def __init__(self, number: str = "") -> None:
        self._number = number
        self.files: dict[str, bytes] = {}
        self.values: dict[str, Any] = {}

    @classmethod
    def now(cls, threads: int | None, number: str = "") -> _State:
        state = cls(number)
        packages = list(installed_packages().values())
        code, here = code_state(), code_state(Path.cwd())
        apart = not Path.cwd().is_relative_to(PACKAGE.parent) and (code is None or here != code)
        state.values = {
            "git": state._with_diff(code, None, DIFF_FILE),
            "project": state._with_diff(here, Path.cwd(), PROJECT_DIFF_FILE) if apart else None,
            "environment": {**state._kept(ENVIRONMENT_FILE, lock_text(packages).encode()), "packages": len(packages)},
            "machine": machine_record(threads),
        }
        return state

    def write(self, record: Path) -> None:
        """Write the files into a run's folder."""
        for name, content in self.files.items():
            write_whole(record / name, content)

    def _with_diff(self, found: dict[str, Any] | None, folder: Path | None, name: str) -> dict[str, Any] | None:
        """A code's state, with its diff as a file of the record."""
        return {**found, "diff": self._kept(name, dirty_diff(folder))} if found and found["changed"] else found

    def _kept(self, name: str, content: bytes) -> dict[str, Any]:
        stem, _, suffix = name.rpartition(".")
        name = f"{stem}{self._number}.{suffix}"
        self.files[name] = content
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}


def _comparable(value: Any) -> Any:
    """A state without the names of its files."""
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items() if name != "file"}
    return value


def _now() -> str:
    return clock.written()
