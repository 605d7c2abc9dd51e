"""The check that no held-out data is trained on. Curation and training run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config.curation import CurationConfig, DuplicatesConfig
from tracewheel.core.errors import DataError, LeakError
from tracewheel.core.files import read_columns, read_table
from tracewheel.core.types import VARIANTS_FILE, canonical_json
from tracewheel.curation.curated_folder import (
    DUPLICATES_FILE,
    EPISODES_FILE,
    HARDER,
    HELD_OUT,
    SPLITS_FILE,
    TASKS_FILE,
    TRAIN,
    VALIDATION,
    all_tasks,
)
from tracewheel.curation.split_record import EPISODE_IDENTITIES, TASK_IDENTITIES, SplitRecord

if TYPE_CHECKING:
    import pandas

SIDES = {TRAIN: "train", VALIDATION: "validation", HELD_OUT: "test", HARDER: "test"}
SHOWN = 10
EPISODE_CLAIMS = (("task", "task_id"), ("user", "user"), ("session", "session"), ("logged task", "task"), ("trace", "trace_id"))


def leak_report(
    tasks: pandas.DataFrame,
    episodes: pandas.DataFrame,
    clusters: pandas.DataFrame | None = None,
    record: SplitRecord | None = None,
) -> list[dict[str, Any]]:
    """Everything that is on more than one of the sides train, validation and test.

    Two tasks are the same when their id, their fingerprint, or their starting point and goal are equal.

    Args:
        tasks: Task records with `split`.
        episodes: Has `task_id` and `split`; optional are `user`, `session`, `task` (the log's name of the task) and `trace_id`.
        clusters: Clusters of duplicate traces (`trace_id`, `cluster`, `kind`) of the kinds that must not be on two sides.
        record: The record of splits: what earlier runs have trained on is on the side train as well, and what they have
            selected on is on the side validation.

    Returns:
        For each leak its `kind`, the `value` on two sides, the `splits`, and the `tasks` and `traces` concerned.

    Raises:
        DataError: the name of a split is unknown.
    """
    import pandas

    parts = [_leaking(tasks, "id", kind, tasks[column]) for kind, column in (("task", "id"), ("fingerprint", "fingerprint"))]
    parts.append(
        _leaking(tasks, "id", "starting point and goal", tasks["initial_state"].map(_sorted) + tasks["goal"].map(_sorted))
    )
    parts += [_leaking(episodes, "task_id", kind, episodes[column]) for kind, column in EPISODE_CLAIMS if column in episodes]
    if clusters is not None:
        copies = episodes[["trace_id", "task_id", "split"]].merge(clusters, on="trace_id")
        parts += [_leaking(own, "task_id", f"{kind} duplicate", own["cluster"]) for kind, own in copies.groupby("kind")]
    if record:
        parts += _spent(tasks, episodes, record)
    leaks = pandas.concat(parts, ignore_index=True)
    return [
        {
            "kind": kind,
            "value": str(value),
            "splits": sorted(set(group["split"])),
            "tasks": sorted(set(group["task"])),
            "traces": sorted(set(group["trace"].dropna())),
        }
        for (kind, value), group in leaks.groupby(["kind", "value"])
    ]


def check_leaks(
    tasks: pandas.DataFrame,
    episodes: pandas.DataFrame,
    clusters: pandas.DataFrame | None = None,
    record: SplitRecord | None = None,
    *,
    allow: bool = False,
) -> list[dict[str, Any]]:
    """Check that nothing is on two of the sides; the arguments are those of `leak_report`.

    Returns:
        The leaks found; empty unless `allow` is set.

    Raises:
        LeakError: something is on two sides and `allow` is not set; the message names it and the tasks concerned.
        DataError: the name of a split is unknown.
    """
    leaks = leak_report(tasks, episodes, clusters, record)
    if leaks and not allow:
        raise LeakError(describe_leaks(leaks))
    return leaks


def check_curated(curated: Path, config: CurationConfig) -> list[dict[str, Any]]:
    """Check a curated folder before training on it: others may have made or changed it.

    The retrain flow does not need this: its own curation made the same check, and the store verifies the entry's digest.

    Args:
        curated: Output of `tracewheel curate`, or similar files. Duplicates are checked only with duplicates.parquet,
            and what earlier runs have trained on only with splits.parquet.
        config: Which kinds of duplicates must not be on two sides, and whether a leak is allowed.

    Returns:
        The leaks found; empty unless they are allowed.

    Raises:
        LeakError: something is on two sides, which is not allowed.
        DataError: a file cannot be read or lacks a column, or the name of a split is unknown.
    """
    claims = {"split", *(column for _, column in EPISODE_CLAIMS)}
    path = curated / EPISODES_FILE
    tasks = read_table(curated / TASKS_FILE)
    episodes = read_table(path, [name for name in read_columns(path) if name in claims])  # without the long conversations
    duplicates, clusters = curated / DUPLICATES_FILE, None
    if duplicates.is_file():
        clusters = linking_clusters(read_table(duplicates), config.duplicates, str(duplicates))
        if "trace_id" not in episodes:
            raise DataError(f"{path}: no column 'trace_id', which {duplicates.name} refers to")
    record = SplitRecord.read(curated) if (curated / SPLITS_FILE).is_file() else None
    return check_leaks(tasks, episodes, clusters, record, allow=config.allow_leak)


def outside_training(curated: Path, trajectories: Path) -> set[str]:
    """Ids of a file's tasks that nothing may learn from.

    Episodes may be learnt from if their task is of the training split, or was made for training: then it is in
    `variants.parquet` beside them, and is none of the tasks that curation keeps apart.

    Raises:
        DataError: a file cannot be read, or lacks a column.
    """
    tasks, variants = all_tasks(curated, ["id", "fingerprint", "split"]), trajectories.with_name(VARIANTS_FILE)
    apart = tasks[tasks["split"] != TRAIN]
    found = set(read_table(trajectories, ["task_id"])["task_id"]) - set(tasks["id"][tasks["split"] == TRAIN])
    if variants.is_file():
        made = read_table(variants, ["id", "fingerprint"])
        found -= set(made["id"][~made["id"].isin(apart["id"]) & ~made["fingerprint"].isin(apart["fingerprint"])])
    return found


def check_training(curated: Path, trajectories: Path) -> None:
    """Check that a file's episodes may be learnt from; see `outside_training`.

    Raises:
        LeakError: one may not, as those of an evaluation.
        DataError: a file cannot be read, or lacks a column.
    """
    if strange := sorted(outside_training(curated, trajectories)):
        raise LeakError(f"{trajectories}: task {strange[0]} is no training task, and only those may be learnt from")


def linking_clusters(clusters: pandas.DataFrame, config: DuplicatesConfig, where: str = "duplicates") -> pandas.DataFrame:
    """The clusters of the kinds that must not be on two sides.

    Raises:
        DataError: a column is missing; the message begins with `where`.
    """
    missing = [name for name in ("trace_id", "cluster", "kind") if name not in clusters]
    if missing:
        raise DataError(f"{where}: no column '{missing[0]}'; name the file that `tracewheel curate` wrote")
    return clusters[clusters["kind"].isin(config.link)]


def describe_leaks(leaks: list[dict[str, Any]]) -> str:
    """A sentence that names the first leaks and counts the others, or states that there are none."""
    if not leaks:
        return "No task, copy of a task, user or session is on two of the sides train, validation and test."
    found = [
        f"{leak['kind']} {leak['value'][:60]} is in {' and '.join(leak['splits'])} (tasks {', '.join(leak['tasks'][:4])})"
        for leak in leaks[:SHOWN]
    ]
    more = f"; and {len(leaks) - SHOWN} more" if len(leaks) > SHOWN else ""
    return "nothing may be on two of the sides train, validation and test: " + "; ".join(found) + more


def _spent(tasks: pandas.DataFrame, episodes: pandas.DataFrame, record: SplitRecord) -> Iterator[pandas.DataFrame]:
    """One row for each use on record of what is now kept from it: the task's own row and one of the side that used it."""
    import pandas

    for frame, task_column, columns in ((tasks, "id", TASK_IDENTITIES), (episodes, "task_id", EPISODE_IDENTITIES)):
        for column, kind in columns.items():
            if column not in frame:
                continue
            for splits, use, side in (
                ((VALIDATION, HELD_OUT, HARDER), "trained", TRAIN),
                ((HELD_OUT, HARDER), "selected", VALIDATION),
            ):
                own = frame[frame["split"].isin(splits)]
                own = own[record.spent(kind, own[column], (use,))]
                facts = {"kind": f"{kind.replace('_', ' ')} {use} earlier", "value": own[column], "task": own[task_column]}
                for split in (own["split"], side):
                    yield pandas.DataFrame({**facts, "split": split, "trace": own.get("trace_id")}, index=own.index)


def _sorted(text: str) -> str:
    """JSON text with its keys sorted, as records keep the order of the log; other text as it is."""
    try:
        return canonical_json(json.loads(text))
    except ValueError:
        return text


def _leaking(frame: pandas.DataFrame, task_column: str, kind: str, values: pandas.Series) -> pandas.DataFrame:
    """One row for each row of `frame` whose value of this kind is on two sides."""
    import pandas

    sides = frame["split"].map(SIDES)
    if sides.isna().any():
        raise DataError(f"no split is called {sorted(set(frame.loc[sides.isna(), 'split'].astype(str)))}")
    codes = values.where(values != "").factorize()[0]
    several = pandas.Series(sides.to_numpy()).groupby(codes).transform("nunique").to_numpy() > 1
    found = frame[several & (codes >= 0)]
    columns = {
        "kind": kind,
        "value": values,
        "task": found[task_column],
        "split": found["split"],
        "trace": found.get("trace_id"),
    }
    return pandas.DataFrame(columns, index=found.index)
