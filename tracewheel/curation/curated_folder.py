"""What a folder that `curate` wrote holds: names of files and splits, and the tasks of a split."""

from __future__ import annotations

from pathlib import Path

from tracewheel.core.types import Task

TASKS_FILE, EPISODES_FILE, SETS_FOLDER = "tasks.parquet", "episodes.parquet", "sets"
DUPLICATES_FILE, CONTAMINATION_FILE = "duplicates.parquet", "contamination.parquet"
SPLITS_FILE, OUTCOMES_FILE = "splits.parquet", "outcomes.parquet"
REPORT_FILE, QUALITY_FILE = "report.json", "quality.json"
OUTCOME_COLUMNS = ("trace_id", "task_id", "family", "success", "created", "session", "user")
TRAIN, VALIDATION, HELD_OUT, HARDER = "train", "validation", "held_out", "harder"
SPLITS = (TRAIN, VALIDATION, HELD_OUT, HARDER)


def load_tasks(curated: Path, split: str) -> list[Task]:
    """The tasks of one split, from a folder that `curate` wrote."""
    import pandas

    frame = pandas.read_parquet(curated / TASKS_FILE)
    rows = frame[frame["split"] == split].to_dict("records")
    return [Task.from_record({str(key): value for key, value in row.items()}) for row in rows]
