"""What a folder that `curate` wrote holds: names of files and splits, and the tasks of a split."""

from __future__ import annotations

from pathlib import Path

from tracewheel.core.files import read_columns, read_table
from tracewheel.core.types import Task

TASKS_FILE, EPISODES_FILE, SETS_FOLDER = "tasks.parquet", "episodes.parquet", "sets"
DUPLICATES_FILE, CONTAMINATION_FILE = "duplicates.parquet", "contamination.parquet"
SPLITS_FILE, OUTCOMES_FILE = "splits.parquet", "outcomes.parquet"
REPORT_FILE, QUALITY_FILE = "report.json", "quality.json"
OUTCOME_COLUMNS = ("trace_id", "task_id", "family", "success", "created")
TRAIN, VALIDATION, HELD_OUT, HARDER = "train", "validation", "held_out", "harder"
SPLITS = (TRAIN, VALIDATION, HELD_OUT, HARDER)


def load_tasks(curated: Path, split: str) -> list[Task]:
    """The tasks of one split, from a folder that `curate` wrote."""
    import pandas

    frame = pandas.read_parquet(curated / TASKS_FILE)
    rows = frame[frame["split"] == split].to_dict("records")
    return [Task.from_record({str(key): value for key, value in row.items()}) for row in rows]


def load_components(curated: Path) -> dict[str, str]:
    """Task id to its component, equal for tasks that share a user, a session or copies; empty where curation wrote none."""
    path = curated / TASKS_FILE
    if "component" not in read_columns(path):
        return {}
    table = read_table(path, ["id", "component"])
    return dict(zip(table["id"], table["component"], strict=True))
