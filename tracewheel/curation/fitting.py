"""Sets that fit the logs there are, with `curation.counts: auto`: what the profile asks for is then the most.

1. A harder tier that cannot be filled is given up, and its tasks join the others.
2. `min_attempts` falls until the training set is full.
3. Where it cannot be, components go to the sides by `curation.shares`, the largest first, each to the side that is furthest
   below its share; `min_attempts` falls until half of the training side counts.

Nothing fits fewer than three components. Then one of them holds almost everything, and the message says what ties it.

The first splits are drawn by quotas from the shortest run of traces, from the oldest on, that fills all sets (`found`). Which
traces these are depends on nothing that comes after them. So the first splits are the same whether the logs are curated on the
day when they suffice or a year later, and a lost record can be rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import SPLITS, TRAIN, VALIDATION
from tracewheel.curation.difficulty import pass_rates
from tracewheel.curation.filters import Filter
from tracewheel.curation.side_replay import Components, TraceLinks, side_of
from tracewheel.curation.split_record import SIDE_OF_SPLIT, TEST
from tracewheel.curation.splits import assign_by_time, assign_splits

if TYPE_CHECKING:
    import pandas


SIZES = ("train_tasks", "validation_tasks", "held_out_tasks", "harder_tasks")
TOO_LARGE = 0.5  # a component with more than this share of the tasks is said to be large
STEPS = 20  # sizes of a split by time that are tried, from all that the shares allow down to a twentieth


@dataclass(frozen=True)
class Fit:
    """Settings that the logs can meet.

    Attributes:
        changes: Settings of `curation` that differ from the profile's, which later curations go on with.
        split: Task id to its split, of a draw by quotas.
        side: Component to its side, where the sizes are below the profile's.
    """

    changes: dict[str, int]
    split: dict[str, str] = field(default_factory=dict)
    side: dict[str, str] = field(default_factory=dict)


def fit(tasks: pandas.DataFrame, config: CurationConfig) -> Fit:
    """Settings with which the first sets can be drawn from all tasks.

    Args:
        tasks: Has `id`, `family`, `tier`, `attempts` and `component`.
        config: The settings asked for, which the tasks do not meet.

    Raises:
        DataError: fewer than three components have a task.
    """
    changes: dict[str, int] = {}
    if config.harder_tasks and not _has_harder(tasks, config):
        changes["harder_tasks"] = 0
        config = config.model_copy(update=changes)
    for attempts in range(config.min_attempts, -1, -1):
        lowered = {"min_attempts": attempts} if attempts < config.min_attempts else {}
        try:
            split = assign_splits(tasks, config.model_copy(update=lowered))
        except DataError:
            continue
        return Fit(changes | lowered, split=dict(zip(tasks["id"], split, strict=True)))
    easy = tasks[tasks["tier"] < config.tier_limit]
    sides = _sides(Counter(easy["component"]), config)
    training = easy.loc[easy["component"].map(sides) == TRAIN, "attempts"]
    half = min(len(training), config.train_tasks) / 2
    attempts = next((count for count in range(config.min_attempts, 0, -1) if (training >= count).sum() >= half), 0)
    return Fit(changes | ({"min_attempts": attempts} if attempts < config.min_attempts else {}), side=sides)


def _has_harder(tasks: pandas.DataFrame, config: CurationConfig) -> bool:
    """Whether the harder tier fills its set, lies above all other tasks, and leaves some."""
    tiers = tasks["tier"]
    return bool(
        (tiers == config.harder_tier).sum() >= config.harder_tasks
        and (tiers < config.harder_tier).any()
        and not (tiers > config.harder_tier).any()
    )


def _sides(sizes: Mapping[str, int], config: CurationConfig) -> dict[str, str]:
    """The side of each component, from its number of tasks."""
    if len(sizes) < 3:
        raise DataError(
            f"train, validation and test need a component each, and the {sum(sizes.values())} usable tasks hang together in"
            f" {len(sizes)}"
        )
    below = {side: share * sum(sizes.values()) for side, share in config.shares.by_side.items()}
    side_of: dict[str, str] = {}
    ordered = sorted(sizes, key=lambda component: (-sizes[component], content_hash(component)))
    for place, component in enumerate(ordered):
        empty = [side for side in below if side not in side_of.values()] if len(ordered) - place <= len(below) else []
        side = max(empty or below, key=below.__getitem__)
        side_of[component] = side
        below[side] -= sizes[component]
    return side_of


def fit_by_time(tasks: pandas.DataFrame, config: CurationConfig) -> tuple[pandas.Series, dict[str, int]]:
    """The split of each task by time, and the settings that were changed for it.

    Raises:
        DataError: as `assign_by_time`, where no sizes fit.
    """
    changes: dict[str, int] = {}
    if config.harder_tasks and not _has_harder(tasks, config):
        changes["harder_tasks"] = 0
    total, shares = len(tasks), config.shares.by_side
    most = {"train_tasks": shares[TRAIN], "validation_tasks": shares[VALIDATION], "held_out_tasks": shares[TEST]}
    failed = DataError("no tasks")
    for step in range(STEPS, 0, -1):
        sizes = {name: min(getattr(config, name), max(1, int(share * total * step / STEPS))) for name, share in most.items()}
        for attempts in range(config.min_attempts, -1, -1):
            settings = changes | sizes | {"min_attempts": attempts}
            try:
                split = assign_by_time(tasks, config.model_copy(update=settings))
            except DataError as error:
                failed = error
                continue
            return split, {name: value for name, value in settings.items() if value != getattr(config, name)}
    raise failed


def describe_components(tasks: pandas.DataFrame, rows: pandas.DataFrame, clusters: pandas.DataFrame | None) -> dict[str, Any]:
    """The components of the tasks, and what ties the largest; no value is named.

    Args:
        tasks: `id` and `component`.
        rows: The traces: `id`, `task_id`, and what links tasks (`user`, `session`, `task`, `fingerprint`).
        clusters: Clusters of copies that link tasks (`trace_id`, `cluster`, `kind`).

    Returns:
        `count`; and of the largest its `tasks`, its `share` of all tasks, and `tied_by`: for each kind of link the largest
        number of its tasks that share one value, from two on.
    """
    sizes = tasks["component"].value_counts()
    if sizes.empty:
        return {"count": 0, "largest": {"tasks": 0, "share": None, "tied_by": {}}}
    largest = sorted(sizes.index[sizes == sizes.iloc[0]])[0]
    own = rows[rows["task_id"].isin(set(tasks.loc[tasks["component"] == largest, "id"]))]
    tied: dict[str, int] = {}
    for name in ("user", "session", "task", "fingerprint"):
        if name in own:
            known = own[own[name].map(lambda value: isinstance(value, str) and value != "")]
            tied[name] = int(known.groupby(name)["task_id"].nunique().max()) if len(known) else 0
    if clusters is not None and len(clusters):
        copies = clusters.merge(own[["id", "task_id"]], left_on="trace_id", right_on="id")
        for kind, group in copies.groupby("kind"):
            tied[f"{kind} copies"] = int(group.groupby("cluster")["task_id"].nunique().max())
    ties = dict(sorted(((name, count) for name, count in tied.items() if count > 1), key=lambda item: (-item[1], item[0])))
    return {
        "count": len(sizes),
        "largest": {"tasks": int(sizes.iloc[0]), "share": float(sizes.iloc[0] / len(tasks)), "tied_by": ties},
    }


def component_words(described: Mapping[str, Any]) -> str:
    """What is said of the largest component."""
    largest = described["largest"]
    ties = ", ".join(f"one value of {name} ties {count} tasks" for name, count in largest["tied_by"].items())
    return (
        f"the largest of {described['count']} components holds {largest['tasks']} tasks ({100 * (largest['share'] or 0):.0f}%)"
        f"{f': {ties}' if ties else ''}. Where such a value is no person, conversation or task of its own (a shared account, a"
        " default), leave it out of the log; copies are linked as curation.duplicates.link says"
    )


def describe_counts(asked: CurationConfig, used: Mapping[str, int], changes: Mapping[str, int]) -> dict[str, Any]:
    """What was asked for and what the logs gave, with what they lack in words.

    Args:
        asked: The profile's settings.
        used: The sizes of the sets.
        changes: The settings that were changed to fit.
    """
    wanted = {name: getattr(asked, name) for name in (*SIZES, "min_attempts")}
    got = {
        **{f"{split}_tasks": count for split, count in used.items()},
        "min_attempts": changes.get("min_attempts", asked.min_attempts),
    }
    says = [f"{wanted[name]} {name} were asked for, the logs give {got[name]}" for name in SIZES if got[name] < wanted[name]]
    if got["min_attempts"] < wanted["min_attempts"]:
        says.append(
            f"too few tasks have {wanted['min_attempts']} scored attempts, so min_attempts is {got['min_attempts']}: pass rates"
            " of single tasks are uncertain"
        )
    if says:
        says.append("more logs fill the sets up to what the profile asks for; curation.counts 'exact' stops instead")
    return {"asked": wanted, "used": got, "says": says}


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
