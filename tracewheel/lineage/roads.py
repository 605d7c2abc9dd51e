"""By which road an entry of the store learned from which traces.

- demonstration: a warm start imitated the episode. Episodes that the chat template cannot write are counted, too.
- hindsight: it imitated the failed episode as a success of another task.
- teacher: it imitated a teacher's solution of the trace's task.
- rollouts, or pairs for direct preference optimisation: the policy played the trace's task.
- passed on: the trace was learned from by an adapter that this one began as, in a store that no longer holds how.

Only the columns that are asked for are read, and of them the rows of the training split.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import read_columns, read_json, read_table
from tracewheel.core.types import GREEDY_FILE
from tracewheel.curation.curated_folder import EPISODES_FILE, TASKS_FILE, TRAIN
from tracewheel.learner.warm_start.selection import episodes_to_imitate, passed
from tracewheel.lineage.work_folder import WorkFolder, stage_of
from tracewheel.rollout.rollout import TRAJECTORIES_FILE

if TYPE_CHECKING:
    import pandas as pd

DEMONSTRATION, HINDSIGHT, TEACHER, ROLLOUTS, PAIRS, PASSED_ON = (
    "demonstration",
    "hindsight",
    "teacher",
    "rollouts",
    "pairs",
    "passed on",
)
COLUMNS = ("trace_id", "task_id", "road", "entry", "curated")
HINDSIGHT_SUFFIX = "-hindsight"
LEARNING = ("warm_start", "rollout", "collect")
SAMPLER_FILE = "sampler.json"


def learned(folder: WorkFolder, entry: str) -> pd.DataFrame:
    """The traces that an entry itself learned from, with the columns `COLUMNS`; none for an entry that learns nothing."""
    import pandas as pd

    curated = curated_of(folder, entry)
    empty = pd.DataFrame(columns=list(COLUMNS))
    if curated is None or not folder.path_of(entry).is_dir() or not (folder.path_of(curated) / EPISODES_FILE).is_file():
        return empty
    if stage_of(entry) == "warm_start":
        found = _imitated(folder, entry, folder.path_of(curated))
    elif stage_of(entry) in LEARNING:
        found = _played(folder, entry, folder.path_of(curated))
    else:
        return empty
    return found.assign(entry=entry, curated=curated)[list(COLUMNS)].reset_index(drop=True)


def curated_of(folder: WorkFolder, entry: str) -> str | None:
    """The curation that an entry was made from."""
    direct = [item.entry for item in folder.inputs(entry) if item.role == "curated"]
    if direct or stage_of(entry) != "collect":
        return direct[0] if direct else None
    runs = [name for run in folder.runs_with(entry) for name in folder.runs[run].needs() or ()]
    return next((name for name in runs if stage_of(name) == "curate"), None)


def task_ids(folder: WorkFolder, entry: str) -> set[str]:
    """The tasks that an entry played: of rollouts, or of an evaluation."""
    found: set[str] = set()
    for file in folder.path_of(entry).rglob("*.parquet"):
        if file.name in (TRAJECTORIES_FILE, GREEDY_FILE):
            found |= set(read_table(file, ["task_id"])["task_id"])
    return found


def training_traces(curated: Path, tasks: Collection[str] | None = None) -> pd.DataFrame:
    """`trace_id`, `task_id`, `success` and `solution` of the training episodes, of some tasks or of all."""
    import pyarrow.dataset

    columns = [name for name in ("trace_id", "task_id", "success", "solution") if name in read_columns(curated / EPISODES_FILE)]
    field = pyarrow.dataset.field
    chosen = field("split") == TRAIN
    if tasks is not None:
        chosen = chosen & field("task_id").isin(pyarrow.array(sorted(tasks), pyarrow.string()))
    frame: pd.DataFrame = pyarrow.dataset.dataset(curated / EPISODES_FILE).to_table(columns=columns, filter=chosen).to_pandas()
    return frame


def _imitated(folder: WorkFolder, entry: str, curated: Path) -> pd.DataFrame:
    import pandas as pd

    config = folder.config(entry)
    settings = config.warm_start if config else None
    kind = folder.made(entry).get("arguments", {}).get("demonstrations", "all")  # not known: rather too many than too few
    if kind in ("replay", "none"):
        return pd.DataFrame(columns=["trace_id", "task_id", "road"])
    if settings is not None and settings.hindsight:
        every = episodes_to_imitate(settings.model_copy(update={"extra_demonstrations": ()}), curated, kind)
        own = every["trace_id"].str.removesuffix(HINDSIGHT_SUFFIX)
        roads = [HINDSIGHT if name != bare else DEMONSTRATION for name, bare in zip(every["trace_id"], own, strict=True)]
        parts = [pd.DataFrame({"trace_id": own, "task_id": every["task_id"], "road": roads})]
    else:
        episodes = folder.once(("training", curated.name), lambda: training_traces(curated))
        chosen = episodes[passed(episodes)] if kind == "verified" else episodes
        parts = [chosen[["trace_id", "task_id"]].assign(road=DEMONSTRATION)]
    for taught in settings.extra_demonstrations if settings else ():
        if (Path(taught) / EPISODES_FILE).is_file():
            solved = read_table(Path(taught) / EPISODES_FILE, ["task_id", "success"])
            of_tasks = training_traces(curated, set(solved.loc[solved["success"] == 1.0, "task_id"]))
            parts.append(of_tasks[["trace_id", "task_id"]].assign(road=TEACHER))
    return pd.concat(parts, ignore_index=True)


def _played(folder: WorkFolder, entry: str, curated: Path) -> pd.DataFrame:
    played = task_ids(folder, entry)
    known = folder.once(("tasks", curated.name), lambda: frozenset(read_table(curated / TASKS_FILE, ["id"])["id"]))
    episodes = folder.once(("training", curated.name), lambda: training_traces(curated))
    if variants := played - known:
        origins = _origins(folder)
        played |= {origins[task] for task in variants if task in origins}
    config = folder.config(entry)
    road = PAIRS if config is not None and config.learner.kind == "dpo" else ROLLOUTS
    return episodes.loc[episodes["task_id"].isin(played), ["trace_id", "task_id"]].assign(road=road)


def _origins(folder: WorkFolder) -> dict[str, str]:
    """Variant of the self-evolving curriculum to the task it was made from, as far as the last run left it."""
    path = folder.path / SAMPLER_FILE
    state: dict[str, Any] = read_json(path) if path.is_file() else {}
    variants = (state.get("curriculum") or {}).get("variants") or []
    return {str(item["task"]["id"]): str(item["origin"]) for item in variants}
