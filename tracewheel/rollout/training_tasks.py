"""The tasks of an iteration as training plays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel.config import ExplorationConfig
from tracewheel.core.files import write_records
from tracewheel.core.kind_table import give_changed
from tracewheel.core.kinds import Kind, parse_kind
from tracewheel.core.types import VARIANTS_FILE, Task
from tracewheel.curation.curated_folder import TRAIN, load_tasks
from tracewheel.environments import takes_argument
from tracewheel.environments.running import NOISE_SEED


class TrainingTasks(NamedTuple):
    """An iteration's tasks, and those among them that the curated folder does not have: variants, and tasks with noise."""

    tasks: list[Task]
    made: list[Task]


def training_tasks(
    exploration: ExplorationConfig, curated: Path, task_ids: Sequence[str], variants: Sequence[Task], seed: int
) -> TrainingTasks:
    """The tasks that the sampler chose, each in the environment that training plays it in.

    Args:
        exploration: Its `environment_args` go into each task.
        curated: The folder of the curation stage.
        task_ids: The sampler's choice.
        variants: Those of them that curation did not make.
        seed: The iteration's.

    Raises:
        DataError: the folder cannot be read.
    """
    known = {task.id: task for task in load_tasks(curated, TRAIN)}
    by_id = known | {task.id: task for task in variants}
    tasks = [by_id[task_id] for task_id in task_ids]
    if exploration.environment_args:
        tasks = [replace(task, environment=training_world(exploration, task.environment, seed)) for task in tasks]
    return TrainingTasks(tasks, [task for task in tasks if task != known.get(task.id)])


def training_world(exploration: ExplorationConfig, environment: str, seed: int) -> str:
    """An environment, as text, with the arguments of training, and with the seed where it takes a `noise_seed`.

    The samples of a group meet the same noise, those of the next iteration another, which cannot be learnt by heart.
    """
    kind, args = parse_kind(environment)
    seeded: dict[str, Any] = {NOISE_SEED: seed} if takes_argument(environment, NOISE_SEED) else {}
    return give_changed(environment, Kind(kind, args | seeded | exploration.environment_args).text)


def write_variants(folder: Path, variants: list[Task]) -> None:
    """Write tasks that curation did not make next to their trajectories, for the stage that scores these."""
    if variants:
        folder.mkdir(parents=True, exist_ok=True)
        write_records(folder / VARIANTS_FILE, variants, Task)
