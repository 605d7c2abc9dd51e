"""What both loops do alike: play tasks, score them, update on them, and judge the result by the gate."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracewheel import (
    ConfigError,
    DataError,
    EvaluateSections,
    RetrainConfig,
    RolloutSections,
    ScoreSections,
    Task,
    UpdateFiles,
    UpdateSections,
    decide_gate,
    evaluate_split,
    policy_of,
    read_records,
    roll_out,
    score,
    update,
    write_json,
)
from tracewheel import Trajectory as Trajectory

BEGUN_FILE = "begun.json"
TRAJECTORIES, SCORES = "trajectories.parquet", "scores.parquet"


def new(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def begin(config: RetrainConfig, out: Path) -> None:
    """Empty the folder of a command. What a kill leaves in it has this mark, and the same command replaces it."""
    write_json(new(out) / BEGUN_FILE, {"profile": config.name})


def check_start(config: RetrainConfig, out: Path, *inputs: Path) -> None:
    """Check what would fail only after all rounds, before `out` is emptied.

    Raises:
        ConfigError: the gate waits for an audit.
        DataError: what is read lies in the folder that is replaced.
    """
    if config.gate.false_accepts == "audit":
        raise ConfigError(
            "gate.false_accepts is audit, and only a run audits its graders: give the number that `tracewheel audit` found, "
            "as in --set gate.false_accepts=0.02"
        )
    if inside := [path for path in inputs if path.resolve().is_relative_to(out.resolve())]:
        raise DataError(f"--out {out}: is replaced, and {inside[0]} lies in it; give another folder")


def play(config: RetrainConfig, state: Path, curated: Path, tasks: Sequence[Task], out: Path, iteration: int) -> Path:
    """Sample a group of each task. Returns the file of trajectories."""
    ids, policy = [task.id for task in tasks], policy_of(state, config.policy.base)
    roll_out(RolloutSections.of(config), policy, curated, ids, new(out), iteration=iteration, variants=tasks)
    return out / TRAJECTORIES


def mark(config: RetrainConfig, tasks: Sequence[Task], trajectories: Path, out: Path) -> Path:
    """Score them by the profile's rubric. Returns the file of scores."""
    score(ScoreSections.of(config), list(tasks), trajectories, new(out))
    return out / SCORES


def learn(
    config: RetrainConfig, played: Path, scored: Path, state: Path, start: Path, out: Path, iteration: int
) -> dict[str, Any]:
    """One update. Returns its figures; `out` is the next state."""
    files = UpdateFiles.of_folders([played.parent], [scored.parent], state=state, reference=start, out=new(out))
    return update(UpdateSections.of(config), files, iteration=iteration)


def trajectories_of(path: Path) -> list[Trajectory]:
    """The trajectories of a file."""
    return read_records(path, Trajectory)


def tokens_of(path: Path) -> int:
    """How many tokens the policy sampled."""
    return sum(sum(each.action_mask) for each in trajectories_of(path))


def judge(config: RetrainConfig, states: dict[str, Path], curated: Path, out: Path) -> dict[str, Any]:
    """The gate's verdict on the held-out tasks, by the profile's own rubric: the second state against the first."""
    folders, rates = [], {}
    for name, state in states.items():
        folder = new(out / name)
        found = evaluate_split(EvaluateSections.of(config), policy_of(state, config.policy.base), curated, "held_out", folder)
        rates[name] = [found[mode]["rate"] for mode in ("greedy", "sampled")]
        folders.append(folder)
    (before, after), (start, end) = folders, states.values()
    share, name = config.gate.false_accepts, next(iter(states))
    assert share != "audit"  # `check_start`
    verdict = decide_gate(
        config.gate, after, before, new(out / "gate"), baseline_name=name, false_accepts=share, trained=end != start
    )
    return {"rates": rates, "verdict": verdict.verdict, "says": verdict.says or verdict.reasons[0]}
