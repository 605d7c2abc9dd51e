"""How a model behind an endpoint does on a split: evaluated as a policy is, so that the two can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracewheel.config import BaselineSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.files import write_records
from tracewheel.core.types import Task, Trajectory
from tracewheel.evaluation.evaluate import write_evaluation
from tracewheel.scoring.score import SCORES_FILE, read_scores, score
from tracewheel.teacher.attempt import Attempt
from tracewheel.teacher.play import Played, Progress, play_all, wanted_episodes
from tracewheel.teacher.trajectory import to_trajectory
from tracewheel.teacher.usage import usage_of

ATTEMPTS_FILE, TRAJECTORIES_FILE = "attempts.parquet", "trajectories.parquet"


def evaluate_endpoint(
    config: BaselineSections,
    tasks: list[Task],
    out: Path,
    *,
    samples: int,
    journal: Path,
    greedy: bool = True,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], Played]:
    """Let the profile's `baseline` play tasks, and score it with the profile's rubric.

    Writes what an evaluation writes (`results.parquet`, `evaluation.json`, trajectories and scores of both modes; see
    `evaluation.evaluate`), and `attempts.parquet`: what each episode took, and whether it can be learned from.
    Episodes that were not scored (refused, failed by the machinery, or cut off by the budget) are NaN, never 0.

    Args:
        config: `baseline`, `rollout`, `rubric`, `evaluation` and `seed` are used.
        samples: Sampled episodes a task, at `baseline.temperature`; may be 0.
        greedy: Whether to play one episode a task at temperature 0.
        journal: Each reply is stored here as soon as it arrives; a later call asks only for what is missing.
        progress: Called with (episodes done, episodes in all).

    Returns:
        The summary as written, and the outcome of playing. Besides an evaluation's figures the summary has `endpoint`: the
        model, what it took (see `usage_of`), and how many episodes are `trainable`.

    Raises:
        ConfigError: the profile has no baseline, or asks for neither greedy nor sampled episodes.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the very first episode got no answer, or none did.
    """
    endpoint = config.baseline
    if endpoint is None:
        raise ConfigError("baseline: the profile has none; set baseline.endpoint and baseline.model")
    wanted = {
        "greedy": wanted_episodes(config, endpoint, tasks, int(greedy), 0.0),
        "sampled": wanted_episodes(config, endpoint, tasks, samples, endpoint.temperature),
    }
    wanted = {mode: episodes for mode, episodes in wanted.items() if episodes}
    if not wanted:
        raise ConfigError("neither greedy nor sampled episodes are asked for")
    # At temperature 0 the first sampled episode is the greedy one, which is paid for once.
    distinct = {item.key: item for episodes in wanted.values() for item in episodes}
    played = play_all(config, endpoint, list(distinct.values()), journal=journal, progress=progress)
    attempts = dict(zip(distinct, played.attempts, strict=True))
    scores, rows = {}, []
    for mode, episodes in wanted.items():
        folder = out / mode
        folder.mkdir(parents=True)
        made = [to_trajectory(attempts[item.key], processed_logprobs=endpoint.processed_logprobs) for item in episodes]
        write_records(folder / TRAJECTORIES_FILE, [trajectory for trajectory, _ in made], Trajectory)
        score(config, tasks, folder / TRAJECTORIES_FILE, folder)
        scores[mode] = read_scores(folder / SCORES_FILE)
        rows += [
            _row(mode, attempts[item.key], why) | {"trajectory_id": trajectory.id}
            for item, (trajectory, why) in zip(episodes, made, strict=True)
        ]
    _write_rows(rows, out)
    usage = usage_of(played.attempts)
    spent = {
        "episodes": len(rows),
        "generated_tokens": usage["completion_tokens"],
        "endpoint": {"model": endpoint.model, **usage, "trainable": sum(row["trainable"] for row in rows)},
    }
    return write_evaluation(config.evaluation, config.rubric, tasks, scores, out, spent), played


def _row(mode: str, attempt: Attempt, why: str) -> dict[str, Any]:
    return {
        "mode": mode,
        "task_id": attempt.task_id,
        "sample": attempt.sample,
        "stop_reason": attempt.stop_reason,
        "detail": attempt.detail,
        "turns": len(attempt.turns),
        "malformed": attempt.malformed,
        **usage_of([attempt]),
        "trainable": not why,
        "not_trainable": why,
    }


def _write_rows(rows: list[dict[str, Any]], out: Path) -> None:
    import pandas as pd

    pd.DataFrame(rows).astype({"cost": "float64"}).to_parquet(out / ATTEMPTS_FILE, index=False)
