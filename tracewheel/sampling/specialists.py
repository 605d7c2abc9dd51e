"""A specialist's own tasks, settings and rating."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tracewheel.config import LoraConfig, RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.validation import MODES


def specialist_config(config: RetrainConfig, families: tuple[str, ...]) -> RetrainConfig:
    """The profile for a specialist of some families: its number of iterations and its LoRA shape.

    It leaves out how specialists are merged, so a change there keeps their stored results valid.
    """
    training, warm_start = config.training, config.warm_start
    assert training.specialists is not None
    iterations = training.specialists.iterations or training.iterations
    shape = warm_start.lora.of(families)
    lora = LoraConfig(**shape.model_dump()) if shape else warm_start.lora
    changes = {
        "training": training.model_copy(update={"iterations": iterations, "specialists": None}),
        "warm_start": warm_start.model_copy(update={"lora": lora}),
    }
    return config.model_copy(update=changes)


def families_of(curated: Path, groups: Mapping[str, Collection[str]]) -> dict[str, str]:
    """The family of each training task.

    Args:
        curated: The folder of the curation stage.
        groups: The specialists' names and families.

    Raises:
        DataError: a family has no training task.
    """
    tasks = read_table(curated / TASKS_FILE)
    tasks = tasks[tasks["split"] == "train"]
    families = {str(task_id): str(family) for task_id, family in zip(tasks["id"], tasks["family"], strict=True)}
    for name, wanted in groups.items():
        if missing := sorted(set(wanted) - set(families.values())):
            raise DataError(
                f"training.specialists.groups.{name}: no training task is of {', '.join(missing)}; "
                f"the families are {', '.join(sorted(set(families.values())))}"
            )
    return families


class FamilySampler:
    """A view of a sampler that offers the tasks of some families. Outcomes go to the whole sampler.

    Args:
        whole: The sampler of all tasks.
        families: The family of each curated task.
        chosen: The families whose tasks are offered.
    """

    def __init__(self, whole: TaskSampler, families: Mapping[str, str], chosen: Collection[str]) -> None:
        self._whole, self._families, self._chosen = whole, families, set(chosen)

    def select(self, n: int, iteration: int, exclude: Collection[str] = ()) -> list[str]:
        """As `TaskSampler.select`, without the tasks of other families."""
        offered = self._whole.weights()
        families = {**self._families, **{task.id: task.family for task in self._whole.variants(offered)}}
        others = {task_id for task_id in offered if families[task_id] not in self._chosen}
        return self._whole.select(n, iteration, {*exclude, *others})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def family_rate(evaluation: Mapping[str, Any], families: Collection[str]) -> float | None:
    """The mean of greedy and sampled success on the tasks of some families; None where a mode has no scored task of them.

    Args:
        evaluation: The summary of an evaluation.
        families: Which of its families count.
    """
    rates = []
    for mode in MODES:
        parts = [evaluation["by_family"][family][mode] for family in families if family in evaluation["by_family"]]
        tasks = sum(part["n"] for part in parts)
        if not tasks:
            return None
        rates.append(sum(part["rate"] * part["n"] for part in parts if part["n"]) / tasks)
    return float(sum(rates) / len(rates))
