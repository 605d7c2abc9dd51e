"""The scoring stage: from stored trajectories to scores. A changed rubric needs no new rollout."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tracewheel.config import ScoreSections
from tracewheel.core.errors import ConfigError, DataError, TimeLimitError
from tracewheel.core.files import read_records, schema_of, write_frame, write_json
from tracewheel.core.kinds import parse_kind
from tracewheel.core.time_limits import Job, Timer, WatchedThreads
from tracewheel.core.types import GREEDY_FILE, VARIANTS_FILE, Score, Task, Trajectory
from tracewheel.scoring.objectives import UNREADABLE_OBJECTIVE
from tracewheel.scoring.rubric import Rubric, success_of, without_total

SCORES_FILE = "scores.parquet"


def score(config: ScoreSections, tasks: list[Task], trajectories: Path, out: Path) -> dict[str, Any]:
    """Score every trajectory of a file with the profile's rubric.

    Tasks that curation did not make are read from `variants.parquet` beside it. If `greedy.parquet` lies there, each score
    gets the total of its task's greedy episode as its `baseline`.

    Args:
        config: The profile; only `rubric` and the policy's `tool_format` are read.
        tasks: The tasks of the trajectories, and possibly others; those that lie beside the trajectories may be missing.
        trajectories: A Parquet file of Trajectory rows.
        out: Directory for `scores.parquet` (Score rows, in the trajectories' order) and `metrics.json`.

    Returns:
        The metrics: the number of trajectories of each status, and the means of `reward`, `success` and each part of the
        breakdown over the scored ones (None when nothing was scored); with turn rewards, how many scored trajectories are
        `without_turn_rewards`; with greedy baselines, the same figures of these under `greedy`.

    Raises:
        ConfigError: a verifier does not exist, or no trajectory has the part that an objective needs.
        DataError: the file cannot be read, or has a trajectory of another task.
        TimeLimitError: too many verifiers hang.
    """
    variants = trajectories.parent / VARIANTS_FILE
    by_id = {task.id: task for task in [*tasks, *(read_records(variants, Task) if variants.is_file() else [])]}
    rollouts = read_records(trajectories, Trajectory)
    unknown = sorted({rollout.task_id for rollout in rollouts} - set(by_id))
    if unknown:
        raise DataError(f"{trajectories}: {len(unknown)} of its tasks are not among those given, the first is {unknown[0]}")
    used = [by_id[task_id] for task_id in sorted({rollout.task_id for rollout in rollouts})]
    rubric = Rubric(config.rubric, used, config.policy.tool_format)
    seconds = config.rubric.verifier_seconds
    scores = _score_all(rubric, [(_as_played(by_id[rollout.task_id], rollout), rollout) for rollout in rollouts], seconds)
    greedy = _greedy_scores(rubric, by_id, trajectories.parent / GREEDY_FILE, seconds)
    baselines = {item.task_id: item.total for item in greedy}
    scores = [replace(item, baseline=baselines.get(item.task_id)) for item in scores]
    worlds = {task.id: parse_kind(task.environment).kind for task in tasks}
    if len(set(worlds.values())) > 1:
        scores = [replace(item, environment=worlds[item.task_id]) for item in scores]
    judged = [item for item in scores if item.status != "infrastructure_failed"]
    if judged and all(item.detail.startswith(UNREADABLE_OBJECTIVE) for item in judged):
        raise ConfigError(f"rubric.objectives: {judged[0].detail}")
    out.mkdir(parents=True, exist_ok=True)
    write_scores(out / SCORES_FILE, scores, baselines=bool(greedy))
    metrics = _metrics(scores)
    if config.rubric.turn_rewards:
        metrics["without_turn_rewards"] = sum(item.status == "scored" and item.turn_rewards is None for item in scores)
    if greedy:
        metrics["greedy"] = _metrics(greedy)
    write_json(out / "metrics.json", metrics)
    return metrics


def _as_played(task: Task, trajectory: Trajectory) -> Task:
    """The task in the environment of the trajectory, whose noise a replay for turn rewards has to repeat."""
    return replace(task, environment=trajectory.played_in) if trajectory.played_in else task


def _score_all(rubric: Rubric, episodes: list[tuple[Task, Trajectory]], seconds: float | None) -> list[Score]:
    """The scores of many trajectories, after the groups among them are compared.

    One that takes longer than `seconds` is unscored, and its verifier is left behind.
    """
    rubric.compare_groups(episodes)
    if seconds is None:
        return [rubric.score(*episode) for episode in episodes]
    names = ("rubric.verifier_seconds", "")
    jobs = [Job(partial(rubric.score, *episode), Timer(seconds, names=names), "verifier") for episode in episodes]
    threads = WatchedThreads(rubric.concurrency, "verifier")
    try:
        threads.run(jobs)
    finally:
        threads.close()
    scores = []
    for job, (task, trajectory) in zip(jobs, episodes, strict=True):
        if job.error is not None and not isinstance(job.error, TimeLimitError):
            raise job.error
        scores.append(without_total(task, trajectory, "unscored", str(job.error)) if job.error else job.result)
    return scores


def write_scores(path: Path, scores: list[Score], *, baselines: bool = False) -> None:
    """Write scores as Parquet, with a float column `total` and a list column `turn_rewards`, null where missing.

    The float column `baseline` is only there with `baselines`; `answer` and `explanation` only where a verifier gave some,
    and `environment` only where the tasks are of several.
    """
    import pandas as pd

    rows = [item.to_record() for item in scores]
    columns = list(Score("", "", "", "unscored", None).to_record())
    columns += [name for name in sorted(Score.OPTIONAL_FIELDS) if any(name in row for row in rows)]
    table = pd.DataFrame(rows, columns=columns)
    if not baselines:
        table = table.drop(columns="baseline")
    numbers = [name for name in ("total", "baseline") if name in table]
    schema = schema_of(Score)
    schema = schema if baselines else schema.remove(schema.get_field_index("baseline"))
    write_frame(path, table.astype(dict.fromkeys(numbers, "float64")), schema)


def read_scores(path: Path) -> list[Score]:
    """Read scores, with None for a missing `total`, `turn_rewards` or `baseline`.

    Raises:
        DataError: the file cannot be read as scores.
    """
    scores = read_records(path, Score)
    return [
        replace(
            item,
            total=_known(item.total),
            baseline=_known(item.baseline),
            turn_rewards=item.turn_rewards if isinstance(item.turn_rewards, list) else None,
        )
        for item in scores
    ]


def _known(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else number


def _greedy_scores(rubric: Rubric, tasks: dict[str, Task], path: Path, seconds: float | None) -> list[Score]:
    """The scores of the greedy episodes, in their order; none without the file."""
    if not path.is_file():
        return []
    return _score_all(rubric, [(tasks[rollout.task_id], rollout) for rollout in read_records(path, Trajectory)], seconds)


def _metrics(scores: list[Score]) -> dict[str, Any]:
    statuses = Counter(item.status for item in scores)
    scored = [item for item in scores if item.status == "scored"]
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for item in scored:
        for name, value in item.breakdown.items():
            parts[name].append(value)
    return {
        "trajectories": len(scores),
        "scored": statuses["scored"],
        "unscored": statuses["unscored"],
        "infrastructure_failed": statuses["infrastructure_failed"],
        "reward": _mean([item.total for item in scored if item.total is not None]),
        "success": _mean([success_of(item) for item in scored]),
        "breakdown": {name: _mean(values) for name, values in sorted(parts.items())},
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


MOST_NAMED = 20
KINDS = ("to_success", "to_failure", "to_unscored", "to_scored")


def score_changes(before: Sequence[Score], after: Sequence[Score]) -> dict[str, Any]:
    """Compare two scorings of the same trajectories, in any order.

    Args:
        before: The earlier scores.
        after: The new ones.

    Returns:
        How many `episodes` there are, how many have another total (`moved`), and of each of `KINDS` how many; the mean
        `reward` of those scored both times, before and after; the same figures by `families`; and up to 20 `examples`,
        trajectory ids, of each kind.

    Raises:
        DataError: they are not of the same trajectories.
    """
    old, new = ({score.trajectory_id: score for score in scores} for scores in (before, after))
    if old.keys() != new.keys():
        raise DataError(f"the scores are of {len(old)} and {len(new)} trajectories, and not of the same ones")
    pairs = [(old[name], new[name]) for name in sorted(new)]
    families = sorted({score.family for score in new.values()})
    examples = {kind: [one.trajectory_id for one, other in pairs if _kind(one, other) == kind][:MOST_NAMED] for kind in KINDS}
    return {
        **_figures(pairs),
        "families": {family: _figures([pair for pair in pairs if pair[1].family == family]) for family in families},
        "examples": examples,
    }


def _figures(pairs: Sequence[tuple[Score, Score]]) -> dict[str, Any]:
    kinds = [_kind(*pair) for pair in pairs]
    both = [(one.total, other.total) for one, other in pairs if one.total is not None and other.total is not None]
    means = [sum(totals) / len(both) for totals in zip(*both, strict=True)] if both else [None, None]
    return {
        "episodes": len(pairs),
        "moved": sum(one != other for one, other in both),
        **{kind: kinds.count(kind) for kind in KINDS},
        "reward": {"before": means[0], "after": means[1]},
    }


def _kind(one: Score, other: Score) -> str:
    if one.total is None or other.total is None:
        return "" if one.total is other.total is None else "to_unscored" if other.total is None else "to_scored"
    was, became = success_of(one) >= 1.0, success_of(other) >= 1.0
    return "" if was == became else "to_success" if became else "to_failure"
