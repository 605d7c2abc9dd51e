"""What a folder that `curate` wrote holds: names of files and splits, and the tasks of a split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.core.files import read_columns, read_table
from tracewheel.core.types import Task

if TYPE_CHECKING:
    import pandas

TASKS_FILE, EPISODES_FILE, SETS_FOLDER = "tasks.parquet", "episodes.parquet", "sets"
DUPLICATES_FILE, CONTAMINATION_FILE = "duplicates.parquet", "contamination.parquet"
SPLITS_FILE, OUTCOMES_FILE = "splits.parquet", "outcomes.parquet"
REPORT_FILE, QUALITY_FILE = "report.json", "quality.json"
OUTCOME_COLUMNS = ("trace_id", "task_id", "family", "success", "created", "session", "user")
TRAIN, VALIDATION, HELD_OUT, HARDER = "train", "validation", "held_out", "harder"
SPLITS = (TRAIN, VALIDATION, HELD_OUT, HARDER)
# Tasks of the test side beyond the held-out set, on which a gate's candidate is confirmed, for so many nights.
RESERVE, RESERVE_FILE, RESERVED_NIGHTS = "reserve", "reserve.parquet", 5


def load_tasks(curated: Path, split: str) -> list[Task]:
    """The tasks of one split, or of the reserve, from a folder that `curate` wrote; earlier versions wrote no reserve."""
    import pandas

    path = curated / (RESERVE_FILE if split == RESERVE else TASKS_FILE)
    if split == RESERVE and not path.is_file():
        return []
    frame = pandas.read_parquet(path)
    rows = frame[frame["split"] == split].to_dict("records")
    return [Task.from_record({str(key): value for key, value in row.items()}) for row in rows]


def all_tasks(curated: Path, columns: list[str] | None = None) -> pandas.DataFrame:
    """The records of all tasks with their `split`, those of the reserve too: what is trained on equals none of the others."""
    import pandas

    tasks, reserve = read_table(curated / TASKS_FILE, columns), curated / RESERVE_FILE
    return pandas.concat([tasks, read_table(reserve, columns)], ignore_index=True) if reserve.is_file() else tasks


def load_components(curated: Path) -> dict[str, str]:
    """Task id to its component, equal for tasks that share a user, a session or copies; empty where curation wrote none."""
    found: dict[str, str] = {}
    for path in (curated / TASKS_FILE, curated / RESERVE_FILE):
        if path.is_file() and "component" in read_columns(path):
            table = read_table(path, ["id", "component"])
            found |= dict(zip(table["id"], table["component"], strict=True))
    return found
