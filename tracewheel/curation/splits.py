"""Splits tasks so that no task, user, session or duplicate is on two sides.

Tasks that share a fingerprint, a user, a session, the log's name of the task or a cluster of duplicates form a component, and
a component is on one side: train, validation, or test (held out and harder). Tasks are drawn in the order of a content hash,
not of a run's seed: runs with other seeds, and later runs with more logs, keep the same held-out tasks.

The alternative is a split by time: the latest tasks are the test side, those before them validate, and older ones train. A
component stays on one side. A task of an earlier side is left out when one of its episodes is as late as the next side:
nothing trained on is later than anything tested on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, TRAIN, VALIDATION
from tracewheel.curation.minhash import Partition

if TYPE_CHECKING:
    import pandas

LINKS = ("fingerprint", "user", "session", "task")
Stratum = tuple[str, int]


def components(
    episodes: pandas.DataFrame, clusters: pandas.DataFrame | None = None, link: Collection[str] | None = None
) -> dict[str, str]:
    """The component of each task id: the smallest task id that it is linked to.

    Args:
        episodes: Has `task_id`; optional are `fingerprint`, `user`, `session` and `task` (the log's name of the task); missing
            values link nothing. With clusters also `trace_id` (or `id`).
        clusters: Clusters of duplicate traces: `trace_id`, `cluster`, `kind`.
        link: The kinds of clusters that link tasks; all by default.
    """
    import pandas

    codes, ids = pandas.factorize(episodes["task_id"], sort=True)
    parts = Partition(len(ids))
    for kind in LINKS:
        if kind in episodes:
            values = episodes[kind]
            _join_equal(parts, codes, values.where(values.map(lambda value: isinstance(value, str) and value != "")))
    if clusters is not None and len(clusters):
        linking = clusters if link is None else clusters[clusters["kind"].isin(list(link))]
        rows = pandas.Index(episodes["trace_id" if "trace_id" in episodes else "id"]).get_indexer(linking["trace_id"])
        _join_equal(parts, codes[rows[rows >= 0]], (linking["kind"] + " " + linking["cluster"])[rows >= 0])
    return dict(zip(ids, ids[parts.labels], strict=True))


def _join_equal(parts: Partition, codes: npt.NDArray[np.int64], values: pandas.Series) -> None:
    """Join the parts of tasks with equal values; missing values join nothing."""
    names = values.factorize()[0]
    held = np.flatnonzero(names >= 0)
    order = held[np.argsort(names[held], kind="stable")]
    same = names[order][1:] == names[order][:-1]
    parts.join(codes[order[1:][same]], codes[order[:-1][same]])


def assign_splits(tasks: pandas.DataFrame, config: CurationConfig) -> pandas.Series:
    """The split of each task, "" for unused tasks.

    Args:
        tasks: Has `id`, `family`, `tier`, `attempts` and `component`; for a split by time also `first_seen` and `last_seen`.
        config: The sizes of the splits, the harder tier, and whether to split by time.

    Raises:
        DataError: too few tasks for a split; the message names their number and the key to lower.
    """
    if config.split == "temporal":
        return assign_by_time(tasks, config)
    strata = zip(tasks["family"], tasks["tier"].astype(int), strict=True)
    stratum_of: dict[str, Stratum] = dict(zip(tasks["id"], strata, strict=True))
    component_of = dict(zip(tasks["id"], tasks["component"], strict=True))
    split_of: dict[str, str] = {}

    def take(split: str, candidates: Sequence[str], wanted: int, key: str) -> None:
        chosen = _stratified(candidates, stratum_of, wanted)
        if len(chosen) < wanted:
            raise DataError(
                f"{split}: {len(chosen)} tasks in the logs can be used, {wanted} are asked for; lower curation.{key}"
                f"{' (0: no harder tier)' if split == HARDER else ''} or bring more logs (tasks that share a user or a session"
                " stay on one side)"
            )
        split_of.update(dict.fromkeys(chosen, split))

    def linked(split: str) -> set[str]:
        return {component_of[task_id] for task_id, own in split_of.items() if own == split}

    easy = tasks[tasks["tier"] < config.tier_limit]
    enough = easy[easy["attempts"] >= config.min_attempts]
    if len(enough) < config.train_tasks:
        below = f" below tier {config.harder_tier}" if config.harder_tasks else ""
        raise DataError(
            f"{TRAIN}: {len(enough)} tasks{below} have {config.min_attempts} attempts or more,"
            f" {config.train_tasks} are asked for; lower curation.train_tasks or curation.min_attempts"
        )
    take(TRAIN, _in_order(enough["id"]), config.train_tasks, "train_tasks")
    free = tasks[~tasks["component"].isin(linked(TRAIN))]
    free_easy = free[free["tier"] < config.tier_limit]
    # Small components first: a large one would exclude many tasks from the test side.
    sizes = Counter(free["component"])
    by_size = sorted(_in_order(free_easy["id"]), key=lambda task_id: sizes[component_of[task_id]])
    take(VALIDATION, by_size, config.validation_tasks, "validation_tasks")
    test = free[~free["component"].isin(linked(VALIDATION))]
    take(HELD_OUT, _in_order(test.loc[test["tier"] < config.tier_limit, "id"]), config.held_out_tasks, "held_out_tasks")
    take(HARDER, _in_order(test.loc[test["tier"] == config.harder_tier, "id"]), config.harder_tasks, "harder_tasks")
    return tasks["id"].map(lambda task_id: split_of.get(task_id, ""))


def quotas(available: Counter[Stratum], wanted: int) -> dict[Stratum, int]:
    """Divide `wanted` among strata in proportion to their sizes, by largest remainders."""
    total = sum(available.values())
    if total <= wanted:
        return dict(available)
    exact = {stratum: wanted * count / total for stratum, count in available.items()}
    shares = {stratum: int(share) for stratum, share in exact.items()}
    by_remainder = sorted(exact, key=lambda stratum: (shares[stratum] - exact[stratum], stratum))
    for stratum in by_remainder[: wanted - sum(shares.values())]:
        shares[stratum] += 1
    return shares


def _stratified(candidates: Sequence[str], stratum_of: dict[str, Stratum], wanted: int) -> list[str]:
    """The first candidates of each stratum, as many as its quota."""
    left = quotas(Counter(stratum_of[task_id] for task_id in candidates), wanted)
    chosen = []
    for task_id in candidates:
        if left[stratum_of[task_id]] > 0:
            left[stratum_of[task_id]] -= 1
            chosen.append(task_id)
    return chosen


def _in_order(task_ids: Iterable[str]) -> list[str]:
    return sorted(task_ids, key=content_hash)


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
