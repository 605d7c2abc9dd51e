"""The stage that turns traces into tasks: replay, verify, name the faults, split, check for leaks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RetrainConfig
from tracewheel.curation.faults import fault_kind
from tracewheel.curation.leaks import check_leaks
from tracewheel.curation.replay import probe, replay_traces
from tracewheel.curation.splits import SPLITS, assign_splits, components
from tracewheel.environments import make_environment
from tracewheel.errors import DataError
from tracewheel.types import Task

if TYPE_CHECKING:
    import pandas

TASKS_FILE, EPISODES_FILE, REPORT_FILE = "tasks.parquet", "episodes.parquet", "report.json"
FAULT_COLUMNS = ["messages", "tools", "success", "breakdown", "ended"]
EPISODE_COLUMNS = ["trace_id", "task_id", "split", "success", "failure", "user", "session", "messages", "tools"]


def curate(config: RetrainConfig, traces: Path, out: Path) -> dict[str, Any]:
    """Make tasks and verified episodes from ingested traces.

    Writes into `out`:

    - tasks.parquet: Task records with `split` (train, validation, held_out, harder) and the logged
      agent's `attempts` and `successes`.
    - episodes.parquet: `trace_id`, `task_id`, `split`, `success` (as replayed; NaN when unscored),
      `failure` (kind of fault or ""), `user`, `session`, `messages` and `tools` (JSON text).
    - report.json: what the function returns.

    Args:
        config: `curation` and `environment` are used.
        traces: Directory that `ingest` wrote.
        out: Directory to write to.

    Raises:
        DataError: no traces, or too few tasks for the splits.
        LeakError: a task, user or session is on two sides.
    """
    import pandas

    path = traces / "traces.parquet"
    if not path.exists():
        raise DataError(f"{path}: no ingested traces; run `tracewheel ingest` first")
    kind = config.environment.kind
    replayed, all_tasks = replay_traces(pandas.read_parquet(path), kind)
    usable = replayed[replayed["dropped"] == ""].copy()
    usable["failure"] = [
        fault_kind(json.loads(messages), json.loads(tools), success, json.loads(breakdown), ended)
        for messages, tools, success, breakdown, ended in usable[FAULT_COLUMNS].itertuples(index=False)
    ]
    environment = make_environment(kind)
    unfit = {task_id: why for task_id, task in sorted(all_tasks.items()) if (why := probe(task, environment))}
    kept = [task for task_id, task in sorted(all_tasks.items()) if task_id not in unfit]
    if not kept:
        raise DataError(f"{path}: none of the {len(replayed)} traces gives a task for the environment '{kind}'")
    tasks = _task_frame(kept, usable)
    tasks["split"] = assign_splits(tasks, config.curation)
    in_use = tasks[tasks["split"] != ""].drop(columns="component")
    in_use = in_use.sort_values(["split", "id"], key=_split_order).reset_index(drop=True)
    episodes = usable.rename(columns={"id": "trace_id"}).merge(in_use[["id", "split"]], left_on="task_id", right_on="id")
    episodes = episodes.sort_values(["split", "task_id", "trace_id"], key=_split_order)[EPISODE_COLUMNS].reset_index(drop=True)
    check_leaks(in_use, episodes)

    report = {
        "funnel": {
            "traces": len(replayed),
            "dropped_traces": dict(sorted(Counter(replayed.loc[replayed["dropped"] != "", "dropped"]).items())),
            "replayed": len(usable),
            "unscored": int(usable["success"].isna().sum()),
            "tasks": len(all_tasks),
            "dropped_tasks": unfit,
            "tasks_unused": int((tasks["split"] == "").sum()),
            "tasks_used": len(in_use),
        },
        "drift": {
            "logged_rewards": int(usable["outcome"].notna().sum()),
            "reward": int(usable["reward_drift"].sum()),
            "observations": int(usable["observation_drift"].sum()),
        },
        "faults": _faults(usable, all_tasks),
        "splits": {split: _describe_split(in_use[in_use["split"] == split]) for split in SPLITS},
        "deployed": {split: _deployed(episodes[episodes["split"] == split], all_tasks) for split in SPLITS},
    }
    out.mkdir(parents=True, exist_ok=True)
    in_use.to_parquet(out / TASKS_FILE, index=False)
    episodes.to_parquet(out / EPISODES_FILE, index=False)
    (out / REPORT_FILE).write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return report


def load_tasks(curated: Path, split: str) -> list[Task]:
    """The tasks of one split, from a directory that `curate` wrote."""
    import pandas

    frame = pandas.read_parquet(curated / TASKS_FILE)
    rows = frame[frame["split"] == split].to_dict("records")
    return [Task.from_record({str(key): value for key, value in row.items()}) for row in rows]


def _task_frame(kept: list[Task], usable: pandas.DataFrame) -> pandas.DataFrame:
    """Task records with `component`, and the logged agent's `attempts` and `successes` (of scored episodes)."""
    import pandas

    tasks = pandas.DataFrame([task.to_record() for task in kept])
    scored = usable[usable["success"].notna()]
    tasks["attempts"] = tasks["id"].map(scored.groupby("task_id").size()).fillna(0).astype(int)
    tasks["successes"] = tasks["id"].map((scored["success"] >= 1.0).groupby(scored["task_id"]).sum()).fillna(0).astype(int)
    tasks["component"] = tasks["id"].map(components(usable))
    return tasks


def _split_order(column: pandas.Series) -> pandas.Series:
    return column.map(SPLITS.index) if column.name == "split" else column


def _faults(usable: pandas.DataFrame, tasks: dict[str, Task]) -> dict[str, dict[str, int]]:
    """How often each fault occurs, in all and by family."""
    failed = usable[usable["failure"] != ""]
    counts: dict[str, Counter[str]] = {"all": Counter(failed["failure"])}
    for task_id, failure in zip(failed["task_id"], failed["failure"], strict=True):
        counts.setdefault(tasks[task_id].family, Counter())[failure] += 1
    return {name: dict(sorted(count.items())) for name, count in sorted(counts.items())}


def _describe_split(tasks: pandas.DataFrame) -> dict[str, Any]:
    return {
        "tasks": len(tasks),
        "families": {name: int(n) for name, n in sorted(Counter(tasks["family"]).items())},
        "tiers": {str(tier): int(n) for tier, n in sorted(Counter(tasks["tier"]).items())},
        "tasks_never_solved": int((tasks["successes"] == 0).sum()),
    }


def _deployed(episodes: pandas.DataFrame, tasks: dict[str, Task]) -> dict[str, Any]:
    """The logged agent's replayed success, over scored episodes; None where there are none."""
    scored = episodes[episodes["success"].notna()]
    solved = (scored["success"] >= 1.0).astype(float)
    families = scored["task_id"].map(lambda task_id: tasks[task_id].family)
    tiers = scored["task_id"].map(lambda task_id: str(tasks[task_id].tier))
    return {
        "episodes": len(episodes),
        "unscored": len(episodes) - len(scored),
        "success": float(solved.mean()) if len(scored) else None,
        "families": {str(name): float(rate) for name, rate in solved.groupby(families).mean().items()},
        "tiers": {str(name): float(rate) for name, rate in solved.groupby(tiers).mean().items()},
    }
