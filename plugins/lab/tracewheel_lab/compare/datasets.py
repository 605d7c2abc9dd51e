"""What two or more runs have learnt from: logs, traces, tasks and splits, by their digests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, FinishedRun, content_hash, setting_differences

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("train", "validation", "held_out", "harder")


def compare_data(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Inputs, logs, traces and splits, each run beside the base.

    Returns:
        `inputs`: digests that differ, without logs; `logs`: for each run the lines that it shares with the base, and its own;
        `rows`: figures for each run; `splits`: for each split and run the number of tasks, the digest of their ids
        and how many are in the base's; `moved`: for each run after the base, tasks that are on another side than in the base.
    """
    base = runs[0]
    tables = [_tasks(run) for run in runs]
    return {
        "inputs": setting_differences([_other_inputs(run) for run in runs]),
        "logs": [_logs(base, run) for run in runs[1:]],
        "rows": [
            {"name": name, "values": [_figure(run, stage, name) for run in runs]}
            for stage, name in (("ingest", "kept"), ("ingest", "duplicates"), ("ingest", "quarantined"))
        ],
        "splits": {split: [_split(table, tables[0], split) for table in tables] for split in SPLITS},
        "moved": [_moved(tables[0], table) for table in tables[1:]],
        "entries": {stage: [_digest(run, stage) for run in runs] for stage in ("ingest", "curate")},
    }


def _tasks(run: FinishedRun) -> pd.DataFrame | None:
    try:
        return run.tasks
    except DataError:
        return None


def _split(table: pd.DataFrame | None, base: pd.DataFrame | None, split: str) -> dict[str, Any]:
    if table is None:
        return {"tasks": None, "digest": None, "in_base": None}
    ids = sorted(table.index[table["split"] == split])
    shared = None if base is None else len(set(ids) & set(base.index[base["split"] == split]))
    return {"tasks": len(ids), "digest": content_hash(ids, 64), "in_base": shared}


def _moved(base: pd.DataFrame | None, table: pd.DataFrame | None) -> dict[str, int]:
    """Tasks of both that have another split, counted by `split in the base → split here`."""
    if base is None or table is None:
        return {}
    both = base[["split"]].add_suffix("_base").join(table[["split"]], how="inner")
    moved = both[both["split"] != both["split_base"]]
    counts = (moved["split_base"] + " → " + moved["split"]).value_counts()
    return {str(name): int(count) for name, count in sorted(counts.items())}


def _logs(base: FinishedRun, run: FinishedRun) -> dict[str, Any]:
    """Slices of the logs, which are the same where their bytes are, whatever their files are called."""
    theirs, ours = _slices(base), _slices(run)
    if theirs is None or ours is None:
        return {"run": run.run_id, "known": False}
    shared = theirs.keys() & ours.keys()
    return {
        "run": run.run_id,
        "known": True,
        "shared_lines": sum(ours[part][1] for part in shared),
        "only_base": _named([theirs[part] for part in theirs if part not in shared]),
        "only_run": _named([ours[part] for part in ours if part not in shared]),
    }


def _slices(run: FinishedRun) -> dict[str, tuple[str, int]] | None:
    """SHA-256 of each slice of the logs that a run has read to its file's name and number of lines."""
    if run.record.snapshot is None:
        return None
    return {
        part["sha256"]: (log["name"], part["next_line"] - part["line"])
        for log in run.record.snapshot["files"]
        for part in log["slices"]
    }


def _named(parts: list[tuple[str, int]]) -> dict[str, int]:
    """Lines by file."""
    found: dict[str, int] = {}
    for name, lines in parts:
        found[name] = found.get(name, 0) + lines
    return found


def _figure(run: FinishedRun, stage: str, name: str) -> Any:
    entry = next(run.of_stage(stage), None)
    return (entry.metadata.get("result") or {}).get(name) if entry else None


def _digest(run: FinishedRun, stage: str) -> str | None:
    entry = next(run.of_stage(stage), None)
    return entry.digest if entry else None


def _other_inputs(run: FinishedRun) -> dict[str, str]:
    return {name: digest for name, digest in run.lineage["inputs"].items() if not name.startswith("traces/")}
