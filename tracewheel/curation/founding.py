"""The first splits: drawn by quotas from the shortest run of traces, from the oldest on, that fills all sets.

Which traces these are depends on nothing that comes after them. So the first splits are the same whether the logs are
curated on the day when they suffice or a year later, and a lost record can be rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import SPLITS
from tracewheel.curation.difficulty import pass_rates
from tracewheel.curation.filters import Filter
from tracewheel.curation.fitting import Fit, fit
from tracewheel.curation.side_replay import Components, TraceLinks, side_of
from tracewheel.curation.split_record import SIDE_OF_SPLIT
from tracewheel.curation.splits import assign_splits

if TYPE_CHECKING:
    import pandas

GROWTH = 100  # the sets are tried again when there is one trace in a hundred more


class Founded(NamedTuple):
    """How many traces the sets are founded on, the ids of the chosen tasks in the order in which they fill the sets, and the
    settings that were fitted to the logs.
    """

    traces: int
    chosen: list[str]
    changes: dict[str, int]


def found(components: Components, links: TraceLinks, tasks: pandas.DataFrame, config: CurationConfig) -> Founded:
    """Add the founding traces to the components and decide the sides of these.

    Components without a task in a set get the side of their hash.

    Args:
        components: Without any trace.
        links: All traces; their rows have `id`, `task_id`, `fingerprint` and `success`.
        tasks: Task records that may be used, before `curation.filter`.
        config: The sizes of the sets and what counts for them.

    Raises:
        DataError: all traces do not suffice; the message names the set and the key to lower, and which settings would fit. With
            `counts: auto` only where nothing fits.
    """
    codes = {task_id: code for code, task_id in links.tasks.items()}
    added, failed = 0, DataError("no traces")
    for count in _worth_trying(links, tasks, config):
        for place in range(added, count):
            components.add(place, None)
        added = count
        known = _tasks(links.rows.iloc[:count], tasks, config)
        known["component"] = [components.root(codes[task_id]) for task_id in known["id"]]
        try:
            split = assign_splits(known, config)
        except DataError as error:
            failed = error
            continue
        split_of = dict(zip(known["id"], split, strict=True))
        _decide(components, links, count, {task: SIDE_OF_SPLIT[own] for task, own in split_of.items() if own}, config)
        return Founded(count, _chosen(split_of), {})
    for place in range(added, len(links.rows)):
        components.add(place, None)
    known = _tasks(links.rows, tasks, config)
    known["component"] = [components.root(codes[task_id]) for task_id in known["id"]]
    known["component"] = known.groupby("component")["id"].transform("min")
    fitted = fit(known, config)
    if config.counts == "exact":
        raise DataError(f"{failed}; {_proposal(fitted)}")
    sides = {task: SIDE_OF_SPLIT[own] for task, own in fitted.split.items() if own}
    sides |= {task: fitted.side[own] for task, own in zip(known["id"], known["component"], strict=True) if own in fitted.side}
    _decide(components, links, len(links.rows), sides, config)
    return Founded(len(links.rows), _chosen(fitted.split), fitted.changes)


def _chosen(split_of: dict[str, str]) -> list[str]:
    """The tasks in a set, in the order in which they fill it."""
    chosen = [task_id for task_id, split in split_of.items() if split]
    return sorted(chosen, key=lambda task_id: (SPLITS.index(split_of[task_id]), content_hash(task_id)))


def _proposal(fitted: Fit) -> str:
    """What `counts: auto` would do."""
    changed = ", ".join(f"{name} {value}" for name, value in fitted.changes.items())
    sizes = "sizes by curation.shares" if fitted.side else ""
    return f"or set curation.counts to 'auto', which takes what the logs give ({', '.join(filter(None, (changed, sizes)))})"


def tried_rows(rows: pandas.DataFrame) -> pandas.Series:
    """Which episodes count for `min_attempts`: those with a score, and those that are a known solution of their task."""
    scored = rows["success"].notna()
    return scored | rows["solution"].astype(bool) if "solution" in rows else scored


def _worth_trying(links: TraceLinks, tasks: pandas.DataFrame, config: CurationConfig) -> Iterator[int]:
    """Numbers of traces with which the sets might be filled, and at last all of them when no smaller number is."""
    tiers = dict(zip(tasks["id"], tasks["tier"], strict=True))
    seen: Counter[str] = Counter()
    easy = harder = tried = 0
    wanted = config.train_tasks + config.validation_tasks + config.held_out_tasks
    total, due = len(links.rows), 0
    scored = tried_rows(links.rows)
    attempts: Counter[str] = Counter()
    for count, (task_id, counts) in enumerate(zip(links.rows["task_id"], scored, strict=True), 1):
        tier = tiers.get(task_id)
        if tier is not None:
            seen[task_id] += 1
            easy += seen[task_id] == 1 and tier < config.tier_limit
            harder += seen[task_id] == 1 and tier == config.tier_limit
            attempts[task_id] += counts
            reached = seen[task_id] == 1 if config.min_attempts == 0 else counts and attempts[task_id] == config.min_attempts
            tried += bool(reached) and tier < config.tier_limit
        if easy >= wanted and harder >= config.harder_tasks and tried >= config.train_tasks and count >= due:
            due = count + max(1, count // GROWTH)
            yield count
    if not due:
        yield total


def _tasks(rows: pandas.DataFrame, tasks: pandas.DataFrame, config: CurationConfig) -> pandas.DataFrame:
    """The tasks of these traces that the filter keeps, with what these traces alone say of them."""
    known = tasks[tasks["id"].isin(set(rows["task_id"]))]
    if config.filter.strip():
        rates, _ = pass_rates(rows[["id", "task_id", "success"]])
        known = known.join(rates.set_index("task_id"), on="id")
        known = known[Filter(config.filter).keep(known)]
    attempts = tried_rows(rows).groupby(rows["task_id"]).sum()
    return known.assign(attempts=known["id"].map(attempts).astype(int)).reset_index(drop=True)


def _decide(components: Components, links: TraceLinks, count: int, sides: dict[str, str], config: CurationConfig) -> None:
    """The sides of all components of the founding traces, from those of tasks."""
    first: dict[int, tuple[int, str]] = {}
    used: dict[int, str] = {}
    rows = links.rows.iloc[:count]
    for code, task_id, fingerprint in zip(links.codes[:count, 0].tolist(), rows["task_id"], rows["fingerprint"], strict=True):
        root = components.root(code)
        first.setdefault(root, (code, str(fingerprint)))
        if side := sides.get(task_id):
            used[root] = side
    for root, (code, fingerprint) in first.items():
        components.begin(code, used.get(root) or side_of(fingerprint, config.shares))
