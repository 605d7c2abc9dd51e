"""The episodes that a warm start imitates: logged ones, a teacher's, and failures relabelled in hindsight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.config import WarmStartConfig
from tracewheel.core.errors import DataError, LeakError
from tracewheel.core.files import read_table
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import EPISODES_FILE, SETS_FOLDER, all_tasks
from tracewheel.curation.hindsight import hindsight_episodes
from tracewheel.curation.labels import JUDGED
from tracewheel.curation.replay import is_tried

if TYPE_CHECKING:
    import pandas as pd

DEMONSTRATIONS_FILE = "demonstrations.parquet"
LOGGED, TAUGHT, RELABELLED = "logged", "taught", "relabelled"
NEEDED = ("task_id", "success", "messages", "tools")


def episodes_to_imitate(settings: WarmStartConfig, curated: Path, kind: str) -> pd.DataFrame:
    """The logged episodes of the training split, those of teachers, and relabelled ones, in this order.

    Args:
        curated: The curation stage's output.
        kind: "verified" for logged episodes that passed when re-executed, and in a recorded environment logged successes and,
            where curation accepts judged outcomes, those that are judged so; any other value for all logged ones.

    Returns:
        Rows with at least `messages` and `tools` (JSON text), and their `source`.

    Raises:
        DataError: there is no episode, or a file lacks a column.
        LeakError: a teacher's episode belongs to a task outside the training split.
    """
    import pandas as pd

    path = curated / EPISODES_FILE
    logged = read_table(path)
    logged = logged[logged["split"] == "train"]
    logged = logged[[is_tried(json.loads(messages)) for messages in logged["messages"]]]
    parts = [(_vouched_for(logged[passed(logged)], curated) if kind == "verified" else logged).assign(source=LOGGED)]
    if settings.extra_demonstrations or settings.hindsight:
        tasks = all_tasks(curated)
        training = tasks[tasks["split"] == "train"]
        parts += [_taught(Path(folder), set(training["id"])).assign(source=TAUGHT) for folder in settings.extra_demonstrations]
        if settings.hindsight:
            rows = [{str(name): value for name, value in row.items()} for row in training.to_dict("records")]
            by_id = {task.id: task for task in map(Task.from_record, rows)}
            taken = set(tasks.loc[tasks["split"] != "train", "fingerprint"])
            parts.append(hindsight_episodes(logged, by_id, taken).assign(source=RELABELLED))
    episodes = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    if episodes.empty:
        raise DataError(f"{path}: no {kind} episode in the training split to learn from")
    return episodes


def passed(episodes: pd.DataFrame) -> pd.Series:
    """Whether each episode is verified: it passed when re-executed, or has the calls of a logged success."""
    passed = episodes["success"] == 1.0
    return passed | episodes["solution"].fillna(False).astype(bool) if "solution" in episodes else passed


def _vouched_for(episodes: pd.DataFrame, curated: Path) -> pd.DataFrame:
    """Without those that are only judged, or like a success, where the demonstrations of the data set have none such."""
    guessed = episodes["outcome_source"] == JUDGED if "outcome_source" in episodes else None
    if guessed is None or not guessed.any():
        return episodes
    accepted = read_table(curated / SETS_FOLDER / DEMONSTRATIONS_FILE, ["trace_id"])["trace_id"]
    return episodes[~guessed | episodes["solution"].fillna(False).astype(bool) | episodes["trace_id"].isin(accepted)]


def _taught(folder: Path, training: set[str]) -> pd.DataFrame:
    path = folder / EPISODES_FILE
    episodes = read_table(path)
    missing = [name for name in NEEDED if name not in episodes]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]}; expected the output of `tracewheel teach`")
    strangers = sorted(set(episodes["task_id"]) - training)
    if strangers:
        raise LeakError(
            f"{path}: {len(strangers)} of its tasks are not in the training split, the first is {strangers[0]}; "
            "let the teacher play this curation's training tasks"
        )
    return episodes[episodes["success"] == 1.0]
