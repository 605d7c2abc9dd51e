"""Two or more finished runs side by side; the first is the base that the others are compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel import (
    DataError,
    FinishedRun,
    changed_tasks,
    paired_differences,
    read_table,
    setting_differences,
    value_differences,
)
from tracewheel_lab.compare.datasets import compare_data
from tracewheel_lab.compare.soundness import soundness

GREEDY, RESULTS_FILE = "greedy", "results.parquet"
LAST_TURNS, LONGEST, MOST_STATES = 4, 240, 3
COLUMNS = ("id", "messages", "final_state", "stop_reason", "detail")


class Episodes:
    """The greedy episodes of an evaluation, read when one is asked for."""

    def __init__(self, evaluation: Path) -> None:
        self._folder = evaluation / GREEDY
        self._rows: dict[str, dict[str, Any]] | None = None

    def get(self, trajectory: str | None) -> dict[str, Any] | None:
        """`messages`, `final_state`, `stop_reason` and the score's `detail` of an episode; None where it is not there."""
        if self._rows is None:
            self._rows = self._read()
        return self._rows.get(trajectory or "")

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            table = read_table(self._folder / "trajectories.parquet", COLUMNS)
            scores = read_table(self._folder / "scores.parquet", ["trajectory_id", "detail"])
        except DataError:
            return {}
        said = dict(zip(scores["trajectory_id"].map(str), scores["detail"].map(str), strict=True))
        rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
        return {str(row["id"]): {**row, "scored": said.get(str(row["id"]), "")} for row in rows}


def excerpt(run: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Where two episodes of a task part, and how each ends.

    Args:
        run: An episode, as `Episodes.get` gives it.
        base: The other run's.

    Returns:
        `parts_at` (number of the first message that differs, from 1; None where all are equal), and for `run` and `base`
        that message and the last `turns`, numbered and in words, `stop_reason`, `scored` (the verifier's words);
        `final_state`: the first places that differ, with the values of `base` and `run`; `more_states`: how many more do.
    """
    ours, theirs = (json.loads(episode["messages"]) for episode in (run, base))
    parts = next((at for at, (one, two) in enumerate(zip(ours, theirs, strict=False)) if one != two), None)
    if parts is None and len(ours) != len(theirs):
        parts = min(len(ours), len(theirs))
    states = [json.loads(episode["final_state"]) for episode in (base, run)]
    found = list(value_differences(*states))
    return {
        "parts_at": None if parts is None else parts + 1,
        "run": _side(run, ours, parts),
        "base": _side(base, theirs, parts),
        "final_state": [[path, _short(one), _short(two)] for path, one, two in found[:MOST_STATES]],
        "more_states": max(0, len(found) - MOST_STATES),
    }


def _side(episode: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], parts: int | None) -> dict[str, Any]:
    first = len(messages) if parts is None else parts
    last = max(len(messages) - LAST_TURNS, min(first + 1, len(messages)))
    shown = [*messages[first : first + 1], *messages[last:]]
    numbers = [*range(first + 1, min(first + 1, len(messages)) + 1), *range(last + 1, len(messages) + 1)]
    return {
        "turns": [f"{number} {in_words(message)}" for number, message in zip(numbers, shown, strict=True)],
        "stop_reason": str(episode["stop_reason"]),
        "scored": str(episode["scored"]),
    }


def in_words(message: Mapping[str, Any]) -> str:
    """A message in one line: role, text, calls."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = [
        f"→ {call['function']['name']}({_short(call['function']['arguments'])})" for call in message.get("tool_calls") or []
    ]
    return " ".join([f"{message['role']}:", *([_short(text)] if text else []), *calls])


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


HELD_OUT = "held_out"
SPLITS = (HELD_OUT, "harder")
FIGURES = {"held-out tasks, greedy": "success", "held-out tasks, sampled": "sampled", "harder tasks, greedy": "harder"}
GATE = ("verdict", "baseline", "difference", "interval", "p_value", "level", "look", "pairs")


def compare_runs(runs: Sequence[FinishedRun], *, policy: str = "rl", excerpts: int = 5) -> dict[str, Any]:
    """Compare finished runs.

    Args:
        runs: The base, then the runs to compare with it.
        policy: Name of the policy that is compared task by task.
        excerpts: Tasks gained, and tasks lost, of which the episodes are shown.

    Returns:
        `runs`, `config` and `environment` (what differs), `metrics` by group, `data`, `comparisons` (one for each run after
        the base: what is sound, paired differences by split and family, tasks gained and lost), and `costs`.

    Raises:
        DataError: a file of a run cannot be read.
    """
    base, *others = runs
    return {
        "policy": policy,
        "runs": [_about(run) for run in runs],
        "config": setting_differences([run.settings for run in runs]),
        "environment": setting_differences([environment_of(run.lineage) for run in runs]),
        "metrics": metrics_of(runs),
        "data": compare_data(runs),
        "comparisons": [compare_two(base, run, policy=policy, excerpts=excerpts) for run in others],
        "costs": costs_of(runs),
    }


def compare_two(base: FinishedRun, run: FinishedRun, *, policy: str, excerpts: int) -> dict[str, Any]:
    """One run against the base, on the tasks that both have played."""
    sound = soundness(base.settings, run.settings, (base.lineage["inputs"], run.lineage["inputs"]))
    found: dict[str, Any] = {
        "base": base.run_id,
        "run": run.run_id,
        "not_paired": sound.against,
        "notes": [*([sound.greedy_only] if sound.greedy_only else []), *sound.notes],
        "splits": {},
        "gained": 0,
        "lost": 0,
        "changes": [],
    }
    sides = {split: [_evaluation(side, policy, split) for side in (base, run)] for split in SPLITS}
    for split, (theirs, ours) in sides.items():
        missing = [side.run_id for side, folder in ((base, theirs), (run, ours)) if folder is None]
        if theirs is None or ours is None:
            if split == HELD_OUT:
                found["not_paired"].append(
                    f"no evaluation of {policy} on {split} tasks is known of {' and '.join(missing)}: the store has lost it, "
                    "or the run is not complete"
                )
            continue
        weight = 1.0 if sound.greedy_only else float((base.settings.get("gate") or {}).get("greedy_weight", 0.5))
        found["splits"][split] = _split(base, run, split, (theirs, ours), None if sound.against else weight)
    theirs, ours = sides[HELD_OUT]
    if theirs and ours and not found["not_paired"]:
        rows = changed_tasks(ours, theirs)
        found |= {change: sum(row["change"] == change for row in rows) for change in ("gained", "lost")}
        found["changes"] = _with_excerpts(rows, run, ours, theirs, excerpts)
    return found


def _evaluation(run: FinishedRun, policy: str, split: str) -> Path | None:
    """The folder of an evaluation, where it is known."""
    entry = run.evaluation(policy, split)
    return entry.path if entry else None


def _split(base: FinishedRun, run: FinishedRun, split: str, folders: tuple[Path, Path], weight: float | None) -> dict[str, Any]:
    """Paired differences on a split, and what is not shared; None for `weight` where nothing can be paired."""
    tables = [read_table(folder / RESULTS_FILE) for folder in folders]
    ids = [set(table["task_id"]) for table in tables]
    shared = ids[0] & ids[1]
    found: dict[str, Any] = {
        "shared": len(shared),
        "only_base": {"tasks": len(ids[0] - shared), "in_run": _sides(run, ids[0] - shared)},
        "only_run": {"tasks": len(ids[1] - shared), "in_base": _sides(base, ids[1] - shared)},
        "entries": {"base": folders[0].name, "run": folders[1].name},
        "paired": None,
    }
    if weight is not None and shared:
        found["paired"] = paired_differences(tables[1], tables[0], greedy_weight=weight)
    return found


def _sides(run: FinishedRun, ids: set[str]) -> dict[str, int]:
    """On which side of a run's splits some tasks of another run are: held out there, trained on here."""
    known = run.tasks[run.tasks["id"].isin(ids)]["split"].value_counts()
    counts = {str(split): int(count) for split, count in sorted(known.items())}
    left = len(ids) - sum(counts.values())
    return {**counts, **({"not in its data": left} if left else {})}


def _with_excerpts(rows: list[dict[str, Any]], run: FinishedRun, ours: Path, theirs: Path, most: int) -> list[dict[str, Any]]:
    """The changed tasks in the base's and the run's words, the first of each kind with both episodes."""
    episodes = {"run": Episodes(ours), "base": Episodes(theirs)}
    shown = {"gained": 0, "lost": 0}
    changes = []
    for row in rows:
        sides = {"run": row["challenger"], "base": row["baseline"]}
        change = {name: row[name] for name in ("task_id", "family", "change")} | sides
        change["prompt"] = str(run.tasks["prompt"].get(row["task_id"], ""))
        if shown[row["change"]] < most:
            shown[row["change"]] += 1
            both = {name: episodes[name].get(side["trajectory"]) for name, side in sides.items()}
            if both["run"] and both["base"]:
                change["excerpt"] = excerpt(both["run"], both["base"])
        changes.append(change)
    return changes


def metrics_of(runs: Sequence[FinishedRun]) -> dict[str, list[dict[str, Any]]]:
    """Figures of the runs by group: `name`, a value for each run (None where it has none) and, where known, `intervals`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for title, key in FIGURES.items():
        names = dict.fromkeys(name for run in runs for name in run.summary.get(key) or {})
        groups[title] = [
            {
                "name": name,
                "values": [(run.summary.get(key) or {}).get(name) for run in runs],
                "intervals": [((run.summary.get("intervals") or {}).get(key) or {}).get(name) for run in runs],
            }
            for name in names
        ]
    groups["validation, best iteration"] = [
        {"name": "iteration", "values": [run.summary.get("best_iteration") for run in runs]},
        *({"name": name, "values": [_best(run).get(name) for run in runs]} for name in ("greedy", "sampled")),
    ]
    groups["gate"] = [{"name": name, "values": [run.gate.get(name) for run in runs]} for name in GATE]
    return {title: kept for title, rows in groups.items() if (kept := [row for row in rows if any(map(_known, row["values"]))])}


def costs_of(runs: Sequence[FinishedRun]) -> dict[str, list[dict[str, Any]]]:
    """Seconds and tokens by stage, episodes and wall time; what a run reused was spent by an earlier one."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for key in ("seconds", "tokens"):
        names = dict.fromkeys(name for run in runs for name in run.summary.get(key) or {})
        rows[key] = [{"name": name, "values": [(run.summary.get(key) or {}).get(name) for run in runs]} for name in names]
        totals = [sum((run.summary.get(key) or {}).values()) or None for run in runs]
        rows[key].append({"name": "all stages", "values": totals})
    rows["in all"] = [
        {"name": "training episodes", "values": [run.summary.get("episodes") for run in runs]},
        {"name": "wall seconds", "values": [run.summary.get("wall_seconds") for run in runs]},
        {"name": "stages wholly reused", "values": [", ".join(run.summary.get("cached", ())) or "none" for run in runs]},
    ]
    return rows


def environment_of(lineage: Mapping[str, Any]) -> dict[str, Any]:
    """What of a lineage says with what a run was made: code, packages, machine."""
    git, machine = lineage.get("git") or {}, lineage.get("machine") or {}
    return {
        "code": {"commit": git.get("commit"), "changed": git.get("changed"), "diff": (git.get("diff") or {}).get("sha256")},
        "packages": dict(lineage.get("packages") or {}),
        "machine": {name: machine[name] for name in ("kind", "python", "threads", "variables") if name in machine},
    }


def _about(run: FinishedRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": str(run.summary.get("name") or run.settings.get("name", "")),
        "folder": str(run.record.path),
        "started": run.lineage.get("started"),
        "state": run.state,
        "policies": run.policies,
    }


def _best(run: FinishedRun) -> dict[str, Any]:
    found: dict[str, Any] = (run.summary.get("validation") or {}).get(str(run.summary.get("best_iteration"))) or {}
    return found


def _known(value: Any) -> bool:
    return value is not None


def check_runs(runs: Sequence[FinishedRun]) -> None:
    """Refuse what is no comparison.

    Raises:
        DataError: there are fewer than two runs, or one is named twice.
    """
    if len(runs) < 2:
        raise DataError("compare takes two or more runs, the first of which is the base")
    folders: list[Path] = [run.record.path for run in runs]
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice:
        raise DataError(f"{twice}: named twice")
