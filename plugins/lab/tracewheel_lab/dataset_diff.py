"""Differences between two versions of a data set: two folders that `curate` or `ingest` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, read_table

if TYPE_CHECKING:
    import pandas

# What `curate` and `ingest` write.
TASKS_FILE, EPISODES_FILE, TRACES_FOLDER = "tasks.parquet", "episodes.parquet", "traces.parquet"
# Columns that may differ for the same task, episode or trace in another version.
TASK_LABELS = ("split", "tier", "family", "success_rate", "attempts", "verifier")
EPISODE_LABELS = ("split", "task_id", "success", "label", "outcome_source", "failure", "failure_kind")
TRACE_LABELS = ("outcome", "task", "format", "session", "user", "model")
DIGITS = 6


def diff_datasets(before: Path, after: Path, *, limit: int | None = 100) -> dict[str, Any]:
    """Compare two versions of a data set by the ids of their tasks and traces, which follow from their contents.

    Args:
        before: A folder with `tasks.parquet` and `episodes.parquet`, or with `traces.parquet`.
        after: Another of the same kind.
        limit: The largest number of entries in each list, the first by id; None for all. Counts are always of all.

    Returns:
        `before`, `after` (the folders), `same`, `counts` (rows of both), and for `tasks` and `episodes`, or for `traces`: the
        numbers `added`, `removed` and `changed`, the changes by label (`by_label`), and `lists` of them, where a change is
        `{"id", label: [before, after]}`. Tasks with the same starting point and goal in other words are `reworded`, not added
        and removed.

    Raises:
        DataError: a folder holds no data set, or the two are of different kinds.
    """
    kinds = [_kind(folder) for folder in (before, after)]
    if kinds[0] != kinds[1]:
        raise DataError(f"{before} is {kinds[0]}, {after} {kinds[1]}; compare two of the same kind")
    result: dict[str, Any] = {"before": str(before), "after": str(after), "counts": {}}
    if kinds[0] == "a curated data set":
        tables = {"tasks": (TASKS_FILE, "id", TASK_LABELS), "episodes": (EPISODES_FILE, "trace_id", EPISODE_LABELS)}
    else:
        tables = {"traces": (TRACES_FOLDER, "id", TRACE_LABELS)}
    for name, (file, key, labels) in tables.items():
        one, other = (_rows(folder / file, key, labels) for folder in (before, after))
        result["counts"][name] = {"before": len(one), "after": len(other)}
        result[name] = _compared(one, other, limit)
    result["same"] = not any(result[name][what] for name in tables for what in ("added", "removed", "changed", "reworded"))
    return result


def _kind(folder: Path) -> str:
    if (folder / TASKS_FILE).exists() and (folder / EPISODES_FILE).exists():
        return "a curated data set"
    if (folder / TRACES_FOLDER).exists():
        return "a folder of ingested traces"
    raise DataError(
        f"{folder}: holds neither {TASKS_FILE} and {EPISODES_FILE} nor {TRACES_FOLDER}; name what curate or ingest wrote"
    )


def _rows(path: Path, key: str, labels: tuple[str, ...]) -> pandas.DataFrame:
    """The labels of each row by id; other columns are not read."""
    table = _read_columns(path, (key, "fingerprint", "successes", *labels))
    if "attempts" in table and "successes" in table:
        rates = (table["successes"] / table["attempts"]).where(table["attempts"] > 0)
        table = table.assign(success_rate=rates)
    kept = [name for name in (*labels, "fingerprint") if name in table]
    return table.drop_duplicates(key).set_index(key)[kept].sort_index()


def _read_columns(path: Path, wanted: tuple[str, ...]) -> pandas.DataFrame:
    import pyarrow.dataset
    from pyarrow import ArrowException

    try:
        data = pyarrow.dataset.dataset(path, format="parquet")
        names = [name for name in dict.fromkeys(wanted) if name in data.schema.names]
        return data.to_table(columns=names).to_pandas()
    except (ArrowException, OSError):
        return read_table(path)  # raises an error that names the problem


def _compared(one: pandas.DataFrame, other: pandas.DataFrame, limit: int | None) -> dict[str, Any]:
    added, removed = other.index.difference(one.index), one.index.difference(other.index)
    reworded = _reworded(one, other, removed, added)
    moved = {identity for pair in reworded for identity in pair.values()}
    lists: dict[str, list[Any]] = {
        "added": [identity for identity in added if identity not in moved],
        "removed": [identity for identity in removed if identity not in moved],
        "reworded": reworded,
    }
    both = one.index.intersection(other.index)
    differing = _differing(one.loc[both], other.loc[both])
    changed = differing.index[differing.any(axis=1)]
    by_label = {str(name): int(count) for name, count in differing.sum().items() if count}
    counts = {name: len(entries) for name, entries in lists.items()}
    lists = {name: entries[:limit] for name, entries in lists.items()}
    lists["changed"] = [_change(identity, differing.loc[identity], one, other) for identity in changed[:limit]]
    return {**counts, "changed": len(changed), "by_label": dict(sorted(by_label.items())), "lists": lists}


def _differing(one: pandas.DataFrame, other: pandas.DataFrame) -> pandas.DataFrame:
    """Whether each label that both versions have differs, by row. Two missing values are equal."""
    import pandas

    differing = {}
    for name in one.columns.intersection(other.columns, sort=False):
        before, after = (_rounded(frame[name]) for frame in (one, other))
        same = (before.astype(object) == after.astype(object)) | (before.isna() & after.isna())
        if name != "fingerprint":
            differing[name] = ~same.fillna(False).astype(bool)
    return pandas.DataFrame(differing, index=one.index)


def _rounded(values: pandas.Series) -> pandas.Series:
    """Rounded floats, so that differences of rounding do not count."""
    return values.round(DIGITS) if values.dtype.kind == "f" else values


def _change(identity: str, differs: pandas.Series, one: pandas.DataFrame, other: pandas.DataFrame) -> dict[str, Any]:
    labels = [str(name) for name, is_other in differs.items() if is_other]
    return {"id": identity, **{name: [_plain(frame[name][identity]) for frame in (one, other)] for name in labels}}


def _plain(value: Any) -> Any:
    """A value to show: None for any missing value, floats rounded."""
    if value is None or value != value:
        return None
    if hasattr(value, "item"):
        value = value.item()
    return round(value, DIGITS) if isinstance(value, float) else value


def _reworded(
    one: pandas.DataFrame, other: pandas.DataFrame, removed: pandas.Index, added: pandas.Index
) -> list[dict[str, str]]:
    """Removed and added tasks with equal fingerprints, paired in order."""
    if "fingerprint" not in one or "fingerprint" not in other:
        return []
    waiting: dict[str, list[str]] = {}
    for identity, fingerprint in one.loc[removed, "fingerprint"].items():
        waiting.setdefault(fingerprint, []).append(str(identity))
    return [
        {"before": waiting[fingerprint].pop(0), "after": str(identity)}
        for identity, fingerprint in other.loc[added, "fingerprint"].items()
        if waiting.get(fingerprint)
    ]
