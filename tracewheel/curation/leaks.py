"""The check that nothing held out is also trained on. Curation runs it, and so does training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewheel.curation.splits import HARDER, HELD_OUT, TRAIN, VALIDATION
from tracewheel.errors import DataError, LeakError

if TYPE_CHECKING:
    import pandas

SIDES = {TRAIN: "train", VALIDATION: "validation", HELD_OUT: "test", HARDER: "test"}
SHOWN = 10


def check_leaks(tasks: pandas.DataFrame, episodes: pandas.DataFrame) -> None:
    """Check that no task, user or session is on two of the sides train, validation and test.

    Two tasks are the same when they have the same id, fingerprint, or starting point and goal.

    Args:
        tasks: Task records with `split`.
        episodes: Has `task_id` and `split`, and `user` and `session` where the log had them.

    Raises:
        LeakError: something is on two sides; the message names it and the tasks concerned.
        DataError: a split has another name than the four.
    """
    import pandas

    parts = [_claims(tasks, "id", kind, tasks[column]) for kind, column in (("task", "id"), ("fingerprint", "fingerprint"))]
    parts.append(_claims(tasks, "id", "starting point and goal", tasks["initial_state"] + tasks["goal"]))
    for kind, column in (("task", "task_id"), ("user", "user"), ("session", "session")):
        if column in episodes:
            parts.append(_claims(episodes, "task_id", kind, episodes[column]))
    claims = pandas.concat(parts, ignore_index=True).dropna(subset=["value"])
    claims = claims[claims["value"] != ""]
    sides = claims.groupby(["kind", "value"])["side"].transform("nunique")
    leaks = claims[sides > 1]
    if leaks.empty:
        return
    found = []
    for (what, value), group in leaks.groupby(["kind", "value"]):
        splits, task_ids = sorted(set(group["split"])), sorted(set(group["task"]))[:4]
        found.append(f"{what} {str(value)[:60]} is in {' and '.join(splits)} (tasks {', '.join(task_ids)})")
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise LeakError("nothing may be on two of the sides train, validation and test: " + "; ".join(found[:SHOWN]) + more)


def _claims(frame: pandas.DataFrame, task_column: str, kind: str, values: pandas.Series) -> pandas.DataFrame:
    """One row for each claim that `value` of `kind` is in a split."""
    import pandas

    sides = frame["split"].map(SIDES)
    if sides.isna().any():
        raise DataError(f"no split is called {sorted(set(frame.loc[sides.isna(), 'split'].astype(str)))}")
    return pandas.DataFrame({"kind": kind, "value": values, "task": frame[task_column], "split": frame["split"], "side": sides})
