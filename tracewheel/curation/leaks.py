"""The check that nothing held out is also trained on. Curation runs it, and so does training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.curation.splits import HARDER, HELD_OUT, TRAIN, VALIDATION
from tracewheel.errors import DataError, LeakError
from tracewheel.files import read_table

if TYPE_CHECKING:
    import pandas

SIDES = {TRAIN: "train", VALIDATION: "validation", HELD_OUT: "test", HARDER: "test"}
SHOWN = 10
EPISODE_CLAIMS = (("task", "task_id"), ("user", "user"), ("session", "session"), ("logged task", "task"), ("trace", "trace_id"))


def leak_report(
    tasks: pandas.DataFrame, episodes: pandas.DataFrame, clusters: pandas.DataFrame | None = None
) -> list[dict[str, Any]]:
    """All that is on two of the sides train, validation and test.

    Two tasks are the same when they have the same id, fingerprint, or starting point and goal.

    Args:
        tasks: Task records with `split`.
        episodes: Has `task_id` and `split`, and what there is of `user`, `session`, `task` (the log's own name of the task) and
            `trace_id`.
        clusters: Clusters of duplicate traces (`trace_id`, `cluster`, `kind`) of the kinds that must not be on two sides.

    Returns:
        For each leak its `kind`, the `value` that is on two sides, the `splits`, and the `tasks` (and `traces`) concerned.

    Raises:
        DataError: a split has another name than the four.
    """
    import pandas

    parts = [_claims(tasks, "id", kind, tasks[column]) for kind, column in (("task", "id"), ("fingerprint", "fingerprint"))]
    parts.append(_claims(tasks, "id", "starting point and goal", tasks["initial_state"] + tasks["goal"]))
    parts += [_claims(episodes, "task_id", kind, episodes[column]) for kind, column in EPISODE_CLAIMS if column in episodes]
    if clusters is not None:
        copies = episodes.merge(clusters, on="trace_id")
        parts += [_claims(own, "task_id", f"{kind} duplicate", own["cluster"]) for kind, own in copies.groupby("kind")]
    claims = pandas.concat(parts, ignore_index=True).dropna(subset=["value"])
    claims = claims[claims["value"] != ""]
    leaks = claims[claims.groupby(["kind", "value"])["side"].transform("nunique") > 1]
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
    tasks: pandas.DataFrame, episodes: pandas.DataFrame, clusters: pandas.DataFrame | None = None, *, allow: bool = False
) -> list[dict[str, Any]]:
    """Check that nothing is on two of the sides; the arguments are those of `leak_report`.

    Returns:
        What `leak_report` found: nothing, or with `allow` what there is.

    Raises:
        LeakError: something is on two sides, and it is not allowed; the message names it and the tasks concerned.
        DataError: a split has another name than the four.
    """
    leaks = leak_report(tasks, episodes, clusters)
    if leaks and not allow:
        raise LeakError(describe_leaks(leaks))
    return leaks


def check_curated(curated: Path, *, allow: bool = False) -> None:
    """Check a curated folder before it is trained on: whoever made it, and whatever was done to it since.

    Raises:
        LeakError: something is on two sides, and it is not allowed.
        DataError: a file cannot be read, or a split has another name than the four.
    """
    check_leaks(read_table(curated / "tasks.parquet"), read_table(curated / "episodes.parquet"), allow=allow)


def describe_leaks(leaks: list[dict[str, Any]]) -> str:
    """A sentence that names the first leaks and counts the others, or says that there are none."""
    if not leaks:
        return "No task, copy of a task, user or session is on two of the sides train, validation and test."
    found = [
        f"{leak['kind']} {leak['value'][:60]} is in {' and '.join(leak['splits'])} (tasks {', '.join(leak['tasks'][:4])})"
        for leak in leaks[:SHOWN]
    ]
    more = f"; and {len(leaks) - SHOWN} more" if len(leaks) > SHOWN else ""
    return "nothing may be on two of the sides train, validation and test: " + "; ".join(found) + more


def _claims(frame: pandas.DataFrame, task_column: str, kind: str, values: pandas.Series) -> pandas.DataFrame:
    """One row for each claim that `value` of `kind` is in a split."""
    import pandas

    sides = frame["split"].map(SIDES)
    if sides.isna().any():
        raise DataError(f"no split is called {sorted(set(frame.loc[sides.isna(), 'split'].astype(str)))}")
    traces = frame.get("trace_id")
    columns = {
        "kind": kind,
        "value": values,
        "task": frame[task_column],
        "split": frame["split"],
        "side": sides,
        "trace": traces,
    }
    return pandas.DataFrame(columns, index=frame.index)
