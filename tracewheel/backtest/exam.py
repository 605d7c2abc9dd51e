"""The tasks that users asked for on each day of the window, for measuring what served them. Nothing is trained on it.

Writes, in the form that evaluations read:

- tasks.parquet: Task records; `split` is the block in which a policy plays them: tasks last asked for at about the same time.
- asked.parquet: a row for each day and task: `day`, `at` (microseconds since 1970), `task_id`, `fingerprint`, `keys` (the
  identities of the task and of all who have asked for it so far, as the record of splits knows them) and `success` (the logged
  agent's, as replayed; NaN where it is not known).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import CurateSections
from tracewheel.core.processes import OrderedMap
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import REPORT_FILE, TASKS_FILE
from tracewheel.curation.probes import probe_tasks
from tracewheel.curation.replayed_traces import Means, replay_all
from tracewheel.curation.side_replay import IDENTITIES
from tracewheel.curation.split_record import identity_key
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    import pandas

ASKED_FILE = "asked.parquet"
COLUMNS = ("day", "at", "task_id", "fingerprint", "keys", "success")
BLOCK_TASKS = 100


def make_exam(
    config: CurateSections, traces: Path, out: Path, days: Sequence[Sequence[str]], per_day: int | None
) -> dict[str, Any]:
    """Make the exam of ingested traces; see the module.

    Args:
        config: `curation` and `environment` are used.
        traces: Folder that `ingest` wrote.
        out: The folder to write to.
        days: (date, begin, end) of each day as ISO 8601 text.
        per_day: At most so many tasks of a day, chosen by a hash of the task; None for all.

    Returns:
        `tasks`, `asked`, `days` (with a task), `blocks`, and `left_out`: traces by the reason why their task is no exam.
    """
    import pandas

    with (
        tempfile.TemporaryDirectory() as scratch,
        OrderedMap(1) as mapped,
        replay_all(traces / TRACES_FOLDER, config.environment.spec, config.curation, Path(scratch), Means(mapped)) as replayed,
    ):
        rows = replayed.rows
        probes, _ = probe_tasks(replayed.tasks, replayed.solutions, mapped=mapped)
        copies = replayed.copy_keys
        rows = rows.assign(copy=rows["id"].map(copies[~copies.index.duplicated()]) if copies is not None else None)
        verdicts = rows["task_id"].map({name: probe.verdict for name, probe in probes.items()}).fillna("")
        why = rows["dropped"].where(rows["dropped"] != "", verdicts)
        asked = _asked(rows[why == ""], days)
        if per_day is not None:
            order = asked["fingerprint"].map(lambda print: content_hash(["exam", print]))
            asked = asked.assign(order=order).sort_values(["at", "order"])
            asked = asked[asked.groupby("day")["order"].rank(method="first") <= per_day].drop(columns="order")
        asked = asked.sort_values(["at", "task_id"]).reset_index(drop=True)
        blocks = _blocks(asked)
        tasks = replayed.tasks.frame(sorted(blocks)) if blocks else pandas.DataFrame(columns=["id"])
        tasks = tasks.assign(split=tasks["id"].map(blocks))
    tasks.to_parquet(out / TASKS_FILE, index=False)
    asked.to_parquet(out / ASKED_FILE, index=False)
    report = {
        "tasks": len(tasks),
        "asked": len(asked),
        "days": int(asked["day"].nunique()),
        "blocks": sorted(set(blocks.values())),
        "left_out": {str(reason): int(count) for reason, count in why[why != ""].value_counts().sort_index().items()},
    }
    (out / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n")
    return report


def micros_of(created: str) -> int:
    """A trace's time in microseconds since 1970."""
    moment = datetime.fromisoformat(created)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _asked(rows: pandas.DataFrame, days: Sequence[Sequence[str]]) -> pandas.DataFrame:
    """The rows of asked.parquet, of usable traces."""
    import pandas

    rows = rows[rows["created"].fillna("") != ""]
    rows = rows.assign(at=rows["created"].map(micros_of)).sort_values(["at", "id"])
    keys: dict[str, set[str]] = {}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    bounds = [(day, micros_of(begin), micros_of(end)) for day, begin, end in days]
    for row in rows.to_dict("records"):
        known = keys.setdefault(row["task_id"], set())
        known |= set(_keys(row))
        day = next((day for day, begin, end in bounds if begin <= row["at"] < end), None)
        if day is None:
            continue
        asked = found.setdefault((day, row["task_id"]), {name: row.get(name) for name in COLUMNS} | {"day": day})
        asked["keys"] = sorted(known)
    return pandas.DataFrame(list(found.values()), columns=list(COLUMNS))


def _keys(row: Mapping[Any, Any]) -> list[str]:
    """The identities of a trace and its task, as the record of splits names them."""
    pairs = [(kind, row[column]) for column, kind in IDENTITIES.items()]
    return [identity_key(kind, value) for kind, value in pairs if isinstance(value, str) and value]


def _blocks(asked: pandas.DataFrame) -> dict[str, str]:
    """Each task's block, by when it is last asked for."""
    last = asked.groupby("task_id")["at"].max().sort_values(kind="stable")
    return {str(task): f"block-{place // BLOCK_TASKS + 1:03}" for place, task in enumerate(last.index)}
