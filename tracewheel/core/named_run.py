"""The run that a person names: by its folder, by its work folder, or by its id."""

from __future__ import annotations

from pathlib import Path

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import CONFIG_FILE, LINEAGE_FILE, RunRecord, find_runs

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
