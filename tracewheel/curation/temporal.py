"""Splits by time: the latest tasks are the test side, those before them validate, and older ones train.

A component stays on one side. A task of an earlier side is left out when one of its episodes is as late as the next side:
nothing trained on is later than anything tested on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, TRAIN, VALIDATION

if TYPE_CHECKING:
    import pandas


class _Task(NamedTuple):
    id: str
    tier: int
    attempts: int
    first_seen: pandas.Timestamp
    last_seen: pandas.Timestamp
    trained: bool
    selected: bool


def seen_times(episodes: pandas.DataFrame) -> pandas.DataFrame:
    """The times of a task's first and last episode: `first_seen` and `last_seen` (UTC, NaT without a time) by task id.

    Args:
        episodes: Has `task_id` and `created` (ISO 8601).
    """
    import pandas

    created = pandas.to_datetime(episodes["created"], utc=True, errors="coerce", format="ISO8601")
    times = created.groupby(episodes["task_id"]).agg(["min", "max"])
    # An episode without a time may be the latest.
    times[created.isna().groupby(episodes["task_id"]).any()] = pandas.NaT
    return times.rename(columns={"min": "first_seen", "max": "last_seen"})


def assign_by_time(tasks: pandas.DataFrame, config: CurationConfig) -> pandas.Series:
    """The split of each task, "" for unused tasks.

    Args:
        tasks: Has `id`, `tier`, `attempts`, `component`, `first_seen` and `last_seen`; optional are `trained` and `selected`,
            whether an earlier run has trained or selected on its component. Such a task is not held out.
        config: The sizes of the splits, and the harder tier.

    Raises:
        DataError: tasks without a time, or too few for a split; the message names their number and what to do.
    """
    missing = int(tasks["first_seen"].isna().sum() + tasks["last_seen"].isna().sum())
    if missing:
        raise DataError(
            f"curation.split 'temporal': {int(tasks['last_seen'].isna().sum())} of {len(tasks)} tasks have an episode without a"
            " time ('created' in the log, ISO 8601); log it, or set curation.split to 'components'"
        )
    begins = tasks.groupby("component")["first_seen"].min()
    latest_first = sorted(begins.index, key=lambda component: (begins[component], content_hash(component)), reverse=True)
    columns = list(_Task._fields)
    tasks = tasks.assign(**{name: False for name in ("trained", "selected") if name not in tasks})
    members = {
        component: [_Task(*row) for row in frame[columns].itertuples(index=False, name=None)]
        for component, frame in tasks.groupby("component")
    }
    split_of: dict[str, str] = {}
    left = iter(latest_first)

    def take(quotas: dict[str, int], before: pandas.Timestamp | None) -> pandas.Timestamp | None:
        """Take components, the latest first, until the quotas are met; returns when the first of their tasks was seen."""
        bound = before
        while any(quotas.values()):
            component = next(left, None)
            if component is None:
                break
            for task in _latest_first(members[component]):
                split = _side(task, quotas, config)
                if split and (before is None or task.last_seen < before):
                    quotas[split] -= 1
                    split_of[task.id] = split
                    bound = task.first_seen if bound is None else min(bound, task.first_seen)
        return bound

    wanted = {HELD_OUT: config.held_out_tasks, HARDER: config.harder_tasks}
    tested = take(wanted, None)
    validation = {VALIDATION: config.validation_tasks}
    validated = take(validation, tested)
    for split, short in {**wanted, **validation}.items():
        if short:
            raise _too_few(split, getattr(config, f"{split}_tasks") - short, getattr(config, f"{split}_tasks"))
    rest = _latest_first(task for component in left for task in members[component])
    old = [task for task in rest if (validated is None or task.last_seen < validated) and task.tier < config.tier_limit]
    enough = [task for task in old if task.attempts >= config.min_attempts]
    if len(enough) < config.train_tasks:
        raise _too_few(TRAIN, len(enough), config.train_tasks)
    split_of.update({task.id: TRAIN for task in enough[: config.train_tasks]})
    return tasks["id"].map(lambda task_id: split_of.get(task_id, ""))


def _side(task: _Task, quotas: dict[str, int], config: CurationConfig) -> str:
    """The split with room that a task may be in, or ""."""
    if task.trained or task.tier > config.tier_limit:
        return ""
    fits = [HARDER] if task.tier == config.tier_limit else [HELD_OUT, VALIDATION]
    return next((split for split in fits if quotas.get(split) and (split == VALIDATION or not task.selected)), "")


def _latest_first(tasks: Iterable[_Task]) -> list[_Task]:
    return sorted(tasks, key=lambda task: (task.last_seen, content_hash(task.id)), reverse=True)


def _too_few(split: str, there_are: int, wanted: int) -> DataError:
    return DataError(
        f"{split}: {there_are} tasks in the logs can be used, {wanted} are asked for; lower curation.{split}_tasks or bring"
        " more logs (split by time, a task is left out when it was tried again as late as the next side begins)"
    )
