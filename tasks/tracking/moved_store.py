"""A sqlite store of MLflow that was moved or copied with its artifacts: its addresses follow it.

MLflow writes where artifacts lie as absolute addresses, into the row of each experiment, run, trace and model version. In a
copied folder they would name the old place: gone, or another store's, which the copy would write to.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import unquote, urlparse

from tracewheel.core.errors import InfrastructureError

ARTIFACTS = "artifacts"
PLACE_TAG = "tracewheel.artifacts"  # of an experiment: its artifacts lie beside the store
BUSY_SECONDS = 10.0
# Table and column of what begins with the address of the artifacts, and of what begins with the folder of the store.
ADDRESSES = (
    ("experiments", "artifact_location"),
    ("experiment_tags", "value"),
    ("runs", "artifact_uri"),
    ("trace_tags", "value"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
FOLDERS = (("tags", "value"),)
SOURCES = (("datasets", "dataset_source"),)  # JSON that holds paths


def location_of(database: Path) -> str:
    """Where the artifacts of a store lie: beside it."""
    return (database.resolve().parent / ARTIFACTS).as_uri()


def follow(database: Path) -> list[str]:
    """Make a store's addresses those of the folder that it lies in; does nothing to a store that was not moved.

    Artifacts count as moved with the store where a run's folder lies beside it, or where `PLACE_TAG` says that they always do.
    Locations that someone chose elsewhere stay.

    Args:
        database: The sqlite file; it need not exist.

    Returns:
        The old locations.

    Raises:
        InfrastructureError: the addresses are old, and the file cannot be written.
    """
    if not database.is_file():
        return []
    here = location_of(database)
    with contextlib.closing(sqlite3.connect(database, timeout=BUSY_SECONDS)) as store:
        try:
            old = _moved_from(store, database, here)
        except sqlite3.Error:
            return []  # locked, damaged or no store of MLflow: MLflow's own first call says so
        try:
            with store:
                for location in old:
                    _rename(store, location, here)
        except sqlite3.Error as error:
            raise InfrastructureError(
                f"{database}: was moved here from {_folder(old[0])}, and its addresses cannot be changed ({error})"
            ) from error
    return old


def _moved_from(store: sqlite3.Connection, database: Path, here: str) -> list[str]:
    """Locations of experiments whose artifacts have come along with the store."""
    found = []
    rows = store.execute(
        "SELECT experiments.experiment_id, artifact_location, value FROM experiments LEFT JOIN experiment_tags "
        "ON experiments.experiment_id = experiment_tags.experiment_id AND key = ?",
        (PLACE_TAG,),
    )
    for experiment, location, beside in rows.fetchall():
        if not location or location == here or not location.startswith("file://") or not location.endswith(f"/{ARTIFACTS}"):
            continue
        runs = store.execute("SELECT run_uuid FROM runs WHERE experiment_id = ?", (experiment,))
        came = any((database.parent / ARTIFACTS / run).is_dir() for (run,) in runs)
        if came or beside == location:
            found.append(location)
    return list(dict.fromkeys(found))


def _rename(store: sqlite3.Connection, old: str, new: str) -> None:
    for table, column in ADDRESSES:
        _replace_start(store, (table, column), old, new)
    old_folder, new_folder = str(_folder(old)), str(_folder(new))
    for table, column in FOLDERS:
        _replace_start(store, (table, column), f"{old_folder}/", f"{new_folder}/")
    for table, column in SOURCES:
        store.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (f'"{old_folder}/', f'"{new_folder}/'))


def _replace_start(store: sqlite3.Connection, place: tuple[str, str], old: str, new: str) -> None:
    table, column = place
    store.execute(
        f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {column} = ? OR substr({column}, 1, ?) = ?",
        (new, len(old) + 1, old, len(old.rstrip("/")) + 1, f"{old.rstrip('/')}/"),
    )


def _folder(location: str) -> Path:
    """The folder of the store whose artifacts have this address."""
    return Path(unquote(urlparse(location).path)).parent
