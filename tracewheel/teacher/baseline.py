"""How a model behind an endpoint does on a split: evaluated as a policy is, so that the two can be compared."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.config import BaselineSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.files import write_records
from tracewheel.core.types import StopReason, Task, Trajectory, Turn, content_hash
from tracewheel.evaluation.evaluate import write_evaluation
from tracewheel.scoring.score import SCORES_FILE, read_scores, score
from tracewheel.teacher.attempt import Attempt, usage_of
from tracewheel.teacher.play import Played, Progress, play_all, wanted_episodes

# The version of a model behind an endpoint is unknown.
UNKNOWN_VERSION = -1
STOP_REASONS: dict[str, StopReason] = {"refused": "infrastructure_failed", "budget": "infrastructure_failed"}


class NotTrainable(Exception):
    """Why an episode cannot be trained on."""


@dataclass
class _Tokens:
    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    spans: list[tuple[int, int]]

    def add(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        self.ids += ids
        self.mask += [int(logprobs is not None)] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs


def to_trajectory(attempt: Attempt, *, processed_logprobs: bool) -> tuple[Trajectory, str]:
    """The trajectory of an episode, and why it is not trainable; empty where it is.

    It is trainable when every reply came with its ids and log-probabilities, each turn's prompt continues exactly from
    the ids before it, and the log-probabilities are those at the temperature. Otherwise the trajectory has no tokens, so
    that no update can train on it. An episode that was refused, or that the budget cut off, counts as failed by the
    machinery: it carries no signal about the model.

    Args:
        attempt: The episode.
        processed_logprobs: Whether the endpoint's log-probabilities have the temperature in them.
    """
    try:
        tokens, why = _tokens(attempt, processed_logprobs), ""
    except NotTrainable as reason:
        tokens, why = _Tokens([], [], [], [(0, 0)] * len(attempt.turns)), str(reason)
    turns = [
        Turn(
            start,
            end,
            turn["calls"],
            turn["malformed"],
            UNKNOWN_VERSION,
            reward=turn.get("reward"),
            errors=turn.get("errors", []),
        ).to_record()
        for (start, end), turn in zip(tokens.spans, attempt.turns, strict=True)
    ]
    stop_reason = STOP_REASONS.get(attempt.stop_reason, attempt.stop_reason)
    trajectory = Trajectory(
        id=content_hash([attempt.key, attempt.messages]),
        task_id=attempt.task_id,
        group=attempt.task_id,
        sample=attempt.sample,
        seed=attempt.seed,
        policy_version=UNKNOWN_VERSION,
        temperature=attempt.temperature,
        token_ids=tokens.ids,
        action_mask=tokens.mask,
        logprobs=tokens.logprobs,
        turns=turns,
        final_state=attempt.final_state or {},
        messages=attempt.messages,
        stop_reason=stop_reason,  # type: ignore[arg-type]
        detail=attempt.detail,
        fault="machine" if attempt.stop_reason in STOP_REASONS else attempt.fault,
        traceback=attempt.traceback,
    )
    return trajectory, why


def _tokens(attempt: Attempt, processed_logprobs: bool) -> _Tokens:
    """Ids, mask and log-probabilities of the whole episode.

    Raises:
        NotTrainable: they are unknown, or do not continue from each other.
    """
    if not attempt.turns or not attempt.finished:
        raise NotTrainable(f"the episode has no end: {attempt.stop_reason}")
    if attempt.temperature == 0.0:
        raise NotTrainable("it was played greedily, and has no distribution to learn under")
    if attempt.temperature != 1.0 and not processed_logprobs:
        raise NotTrainable(
            f"it was sampled at temperature {attempt.temperature:g}, and the endpoint's log-probabilities are taken to be "
            "those before it (see processed_logprobs)"
        )
    whole = _Tokens([], [], [], [])
    for number, turn in enumerate(attempt.turns, 1):
        said = turn["tokens"]
        if said is None:
            raise NotTrainable(f"turn {number}: {turn['without_tokens']}")
        known, prompt = len(whole.ids), said["prompt_ids"]
        if prompt[:known] != whole.ids:
            pairs = itertools.zip_longest(whole.ids, prompt[:known])
            place = next(place for place, (one, other) in enumerate(pairs) if one != other)
            raise NotTrainable(
                f"turn {number}: its prompt does not go on from the {known} tokens before it; they part at token {place}"
            )
        whole.add(prompt[known:])
        start = len(whole.ids)
        whole.add(said["token_ids"], said["logprobs"])
        whole.spans.append((start, len(whole.ids)))
    return whole


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
