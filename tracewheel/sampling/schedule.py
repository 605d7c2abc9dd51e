"""The fixed choices of the reinforcement-learning loop, which every driver of it must make alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel.config import RolloutConfig, TrainingConfig
from tracewheel.core.types import content_hash
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores

VALIDATION_SAMPLES = 1


def rollout_seed(seed: int, iteration: int) -> int:
    """Seed of one iteration's rollouts."""
    return _derive(seed, "rollout", iteration)


def rollout_temperature(rollout: RolloutConfig, iterations: int, iteration: int) -> float:
    """What an iteration's rollouts are sampled at: in a straight line from `temperature` to `exploration.temperature_end`."""
    start, end = rollout.temperature, rollout.exploration.temperature_end
    if end is None:
        return start
    return start + (end - start) * (iteration - 1) / max(1, iterations - 1)


def evaluation_seed(seed: int, split: str) -> int:
    """Seed of an evaluation's sampled rollouts: the same for every policy, so that they are paired."""
    return _derive(seed, "evaluation", split)


def validates(training: TrainingConfig, iteration: int) -> bool:
    """Whether an iteration's policy is a candidate: every few are, and the last."""
    return iteration % training.validate_every == 0 or iteration == training.iterations


def has_room(budget: int | None, used: int, wanted: int) -> bool:
    """Whether another iteration, of `wanted` episodes, fits in what is left of the budget of episodes."""
    return budget is None or used + wanted <= budget


def validation_rate(evaluation: Mapping[str, Any]) -> float:
    """What candidates are ranked by: the mean of greedy and sampled success."""
    return sum(evaluation[mode]["rate"] or 0.0 for mode in ("greedy", "sampled")) / 2


def observe_scores(sampler: TaskSampler, scores: Path) -> None:
    """Tell the sampler how an iteration's rollouts went; unscored ones say nothing."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for score in read_scores(scores):
        success = success_of(score)
        if not math.isnan(success):
            counts[score.task_id][0 if success else 1] += 1
    for task_id, (successes, failures) in sorted(counts.items()):
        sampler.observe(task_id, successes, failures)


def _derive(*parts: object) -> int:
    return int(content_hash(list(parts), 8), 16)
