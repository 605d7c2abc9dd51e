"""The first splits: drawn by quotas from the shortest run of traces, from the oldest on, that fills all sets.

Which traces these are depends on nothing that comes after them. So the first splits are the same whether the logs are
curated on the day when they suffice or a year later, and a lost record can be rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import SPLITS
from tracewheel.curation.difficulty import pass_rates
from tracewheel.curation.filters import Filter
from tracewheel.curation.side_replay import Components, TraceLinks, side_of
from tracewheel.curation.split_record import SIDE_OF_SPLIT
from tracewheel.curation.splits import assign_splits

if TYPE_CHECKING:
    import pandas

GROWTH = 100  # the sets are tried again when there is one trace in a hundred more


def found(components: Components, links: TraceLinks, tasks: pandas.DataFrame, config: CurationConfig) -> tuple[int, list[str]]:
    """Add the founding traces to the components and decide the sides of these.

    Components without a task in a set get the side of their hash.

    Args:
        components: Without any trace.
        links: All traces; their rows have `id`, `task_id`, `fingerprint` and `success`.
        tasks: Task records that may be used, before `curation.filter`.
        config: The sizes of the sets and what counts for them.

    Returns:
        How many traces the sets are founded on, and the ids of the chosen tasks in the order in which they fill the sets.

    Raises:
        DataError: all traces do not suffice; the message names the set and the key to lower.
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
        _decide(components, links, count, dict(zip(known["id"], split, strict=True)), config)
        chosen = known.assign(split=split, order=known["id"].map(content_hash))
        chosen = chosen[chosen["split"] != ""].sort_values(["split", "order"], key=_in_order)
        return count, chosen["id"].tolist()
    raise failed


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
            easy += seen[task_id] == 1 and tier < config.harder_tier
            harder += seen[task_id] == 1 and tier == config.harder_tier
            attempts[task_id] += counts
            tried += bool(counts) and attempts[task_id] == config.min_attempts and tier < config.harder_tier
        if easy >= wanted and harder >= config.harder_tasks and tried >= config.train_tasks and count >= due:
            due = count + max(1, count // GROWTH)
            yield count
    if not due:
        yield total


def _tasks(rows: pandas.DataFrame, tasks: pandas.DataFrame, config: CurationConfig) -> pandas.DataFrame:
    """The tasks of these traces that the filter keeps, with what these traces alone say of them."""
    known = tasks[tasks["id"].isin(set(rows["task_id"]))]
    if config.filter.strip():
        rates, _ = pass_rates(rows[["id", "task_id", "success"]], config.difficulty)
        known = known.join(rates.set_index("task_id"), on="id")
        known = known[Filter(config.filter).keep(known)]
    attempts = tried_rows(rows).groupby(rows["task_id"]).sum()
    return known.assign(attempts=known["id"].map(attempts).astype(int)).reset_index(drop=True)


def _decide(components: Components, links: TraceLinks, count: int, split_of: dict[str, str], config: CurationConfig) -> None:
    """The sides of all components of the founding traces."""
    first: dict[int, tuple[int, str]] = {}
    used: dict[int, str] = {}
    rows = links.rows.iloc[:count]
    for code, task_id, fingerprint in zip(links.codes[:count, 0].tolist(), rows["task_id"], rows["fingerprint"], strict=True):
        root = components.root(code)
        first.setdefault(root, (code, str(fingerprint)))
        if split := split_of.get(task_id):
            used[root] = SIDE_OF_SPLIT[split]
    for root, (code, fingerprint) in first.items():
        components.begin(code, used.get(root) or side_of(fingerprint, config.shares))


def _in_order(column: pandas.Series) -> pandas.Series:
    return column.map(SPLITS.index) if column.name == "split" else column
