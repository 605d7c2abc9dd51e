"""The record of a run: its settings, starting point and results.

`work_dir/<run id>/` holds `config.yaml` (resolved), `lineage.json` (what the run was made with and from),
`environment.txt` (the installed packages), `code.diff` (what tracked files held beyond the commit, if anything) and
`start.json` (champion, evidence, record of splits and task posterior at the start, so that a resumed run sees the same).
`snapshot.json` is what the run reads of the logs, `template.json` the check of the base's chat template. `entries.txt` names
the store's entries that the run asked for. Reinforcement learning adds `loop.json` (the store entries of each iteration),
`figures.json` (its metrics, and when) and `doctor.json` (the doctor's findings); `damaged.json` lists what was damaged in the
store and made again. The end of the run adds `gate.json`, `report.html`, `splits.parquet` and `summary.json`. A run with a
summary is complete. `registered/` holds what waits for the model registry, `mlflow.json` what MLflow has of the run.

`lineage.json` names what is kept elsewhere with its digest, and copies nothing. At the start: `started`, `git` (of the code;
null outside a repository), `project` (of the working folder, where that is another repository), `inputs` (digests), `packages`
(versions of those that results depend on), `environment` (the file with all of them), `machine`, `config`, `snapshot`, and what
the caller adds (seeds, base model, DVC). `resumed` lists later starts with other code, packages or machine. At the end of a run
the caller adds its results (`tasks/closing/lineage.py`). A run of an earlier version has `started`, `git`, `inputs` and
`packages` only, and no `schema`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tracewheel.core import clock
from tracewheel.core.code_state import code_state, dirty_diff, installed_packages, lock_text
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import (
    CURATION_PACKAGES,
    NUMERIC_PACKAGES,
    PACKAGE,
    READING_PACKAGES,
    digest_file,
    package_versions,
)
from tracewheel.core.machine import machine_record
from tracewheel.core.run_state import RunState
from tracewheel.core.store import PARTIAL, disk_errors, remove, write_whole

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
        "started": clock.written(),
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
        resumed = [*lineage["resumed"], {"at": clock.written(), **state.values}]
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


CONFIG_FILE, LINEAGE_FILE, START_FILE, SUMMARY_FILE = "config.yaml", "lineage.json", "start.json", "summary.json"
DAMAGED_FILE = "damaged.json"
SNAPSHOT_FILE, LOOP_FILE = "snapshot.json", "loop.json"
ENTRIES_FILE = "entries.txt"
FIGURES_FILE = "figures.json"

# What a person does about a damaged file of the record.
HINTS = {
    LINEAGE_FILE: "delete it: the next start of the run writes it again",
    START_FILE: "delete it: the next start of the run looks up again what it starts from, and the store keeps what is the same",
    SUMMARY_FILE: "delete it: `tracewheel retrain` writes it again from the store",
}


class RunRecord:
    """Reads and writes the folder of one run; every file is written atomically."""

    def __init__(self, work_dir: Path, run_id: str) -> None:
        self.run_id = run_id
        self.path = work_dir / run_id
        self._needs: set[str] = set()
        self.state = RunState(self.path)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary, or None while the run is incomplete."""
        return self._read(SUMMARY_FILE)

    @property
    def damaged(self) -> list[dict[str, str]]:
        """The stored results that this run found damaged and made again: `entry` and `flaw` of each."""
        try:
            return self._read(DAMAGED_FILE) or []
        except DataError:
            return []  # a note only

    @property
    def lineage(self) -> dict[str, Any]:
        """What a run that was begun was made with and from (`run_lineage`)."""
        found: dict[str, Any] = read_json(self.path / LINEAGE_FILE, HINTS[LINEAGE_FILE])
        return found

    @property
    def made_again(self) -> bool:
        """Whether it makes a finished run again."""
        return (self.path / LINEAGE_FILE).is_file() and "made_again" in self.lineage

    @property
    def snapshot(self) -> dict[str, Any] | None:
        """What the run reads of the logs, and `settings`, the hash of its settings; None for a run of an earlier version."""
        path = self.path / SNAPSHOT_FILE
        return read_json(path) if path.is_file() else None

    def open(
        self,
        config: dict[str, Any],
        inputs: dict[str, str],
        snapshot: dict[str, Any] | None = None,
        made_with: dict[str, Any] | None = None,
    ) -> None:
        """Delete partial files of a killed process; write config, snapshot and lineage unless they exist.

        A run that is resumed with other code, packages or machine notes that in its lineage.

        Args:
            config: The resolved profile.
            inputs: Digests of what the run reads.
            snapshot: What it reads of the logs.
            made_with: Seeds, base model and whatever else its lineage names.
        """
        for leftover in self.path.glob(f"{PARTIAL}*"):
            remove(leftover)
        self.keep_config(config)
        if snapshot is not None:
            self._keep(SNAPSHOT_FILE, lambda: _json(snapshot))
        if (self.path / LINEAGE_FILE).is_file():
            note_resumed(self.path, self.lineage, threads=config.get("threads"))
        else:
            write_whole(self.path / LINEAGE_FILE, _json(lineage_of_start(self.path, inputs, config, made_with or {})))

    def keep_config(self, config: dict[str, Any]) -> None:
        """Write the resolved profile, unless it is there."""
        self._keep(CONFIG_FILE, lambda: yaml.safe_dump(config, sort_keys=False))

    def start(self, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored starting point; on the first call, the result of `look`, which is stored."""
        self._keep(START_FILE, lambda: _json(look()))
        return self._read(START_FILE) or {}

    def started(self) -> dict[str, Any] | None:
        """The stored starting point, or None where the run has not started."""
        return self._read(START_FILE)

    def need(self, entry: str) -> None:
        """Note the name of an entry of the store before the run asks for it, so that `tracewheel runs gc` keeps it."""
        self._needs = self._needs or self.needs() or set()
        if entry in self._needs:
            return
        path = self.path / ENTRIES_FILE
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(f"{entry}\n")
        self._needs.add(entry)

    def needs(self) -> set[str] | None:
        """Names of the entries that the run asked for, those of its specialists included; None where no run noted them."""
        files = [self.path / ENTRIES_FILE, *self.path.glob(f"specialists/*/{ENTRIES_FILE}")]
        if not any(file.is_file() for file in files):
            return None
        return {name for file in files if file.is_file() for name in file.read_text().split()}

    def write(self, name: str, value: Any) -> Path:
        """Write a JSON file of the record."""
        write_whole(self.path / name, _json(value))
        return self.path / name

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Iteration to its `metrics` and to the time `at` which it was complete, in milliseconds since 1970."""
        return self._read(FIGURES_FILE) or {}

    def note_figures(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        """Note the metrics of an iteration, unless they are known: a resumed run comes by again."""
        figures = self.figures
        if str(iteration) not in figures:
            found = {name: None if value is None else float(value) for name, value in metrics.items()}
            self.path.mkdir(parents=True, exist_ok=True)
            self.write(FIGURES_FILE, {**figures, str(iteration): {"at": clock.milliseconds(), "metrics": found}})

    def _read(self, name: str) -> Any:
        path = self.path / name
        return read_json(path, HINTS.get(name, "")) if path.is_file() else None

    def _keep(self, name: str, text: Callable[[], str]) -> None:
        if not (self.path / name).is_file():
            write_whole(self.path / name, text())


def loops_of(record: Path) -> dict[str, Path]:
    """The loops of a run: the specialist's name (empty for the run's own loop) to the folder with its `loop.json`."""
    found = {"": record} if (record / LOOP_FILE).is_file() else {}
    # A specialist's loop has its own record inside the run's: `specialists/<name>/<run id>`.
    return found | {path.parents[1].name: path.parent for path in sorted(record.glob(f"specialists/*/*/{LOOP_FILE}"))}


def find_runs(work_dir: Path) -> list[RunRecord]:
    """The runs in a work folder, latest start first."""
    records = [RunRecord(work_dir, path.parent.name) for path in work_dir.glob(f"*/{LINEAGE_FILE}")]
    return sorted(records, key=_begun, reverse=True)


def _begun(record: RunRecord) -> tuple[str, int]:
    """When a run began; of those of the same second, the time of the file decides."""
    return str(record.lineage["started"]), (record.path / LINEAGE_FILE).stat().st_mtime_ns


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


SHOWN = 5


def run_named(name: str, work_dir: str | Path = "runs") -> RunRecord:
    """The record of a run.

    Args:
        name: The folder of a run, a work folder (its latest complete run, else the latest), or an id or its first characters.
        work_dir: The work folder in which ids are looked up.

    Raises:
        DataError: there is no such run, or several begin with these characters.
    """
    folder = Path(name)
    if (folder / LINEAGE_FILE).is_file() and (folder / CONFIG_FILE).is_file():
        folder = folder.resolve()
        return RunRecord(folder.parent, folder.name)
    if folder.is_dir():
        records = find_runs(folder.resolve())
        if not records:
            raise DataError(
                f"{folder}: neither a run's folder ({CONFIG_FILE}, {LINEAGE_FILE}) nor a work folder with runs in it"
            )
        return next((record for record in records if record.summary is not None), records[0])
    records = find_runs(Path(work_dir).resolve())
    found = [record for record in records if record.run_id.startswith(name)] if name else []
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{name}: {len(found)} runs in {work_dir} begin with it: {_shown(found)}")
    known = f"it has {_shown(records)}" if records else "it has no runs; give a run's folder, or the work folder with --run-dir"
    raise DataError(f"{name}: no folder, and no run of that id in {work_dir}; {known}")


def _shown(records: list[RunRecord]) -> str:
    more = f" and {len(records) - SHOWN} more" if len(records) > SHOWN else ""
    return ", ".join(record.run_id for record in records[:SHOWN]) + more
