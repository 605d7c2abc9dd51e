"""Dynamic sampling: more tasks are rolled out until enough groups carry a signal (DAPO, Yu et al. 2025,
arXiv:2503.14476).

A group carries a signal when the rewards of its scored samples differ. An iteration rolls out its
tasks; while fewer than `learner.zero_variance.min_groups` groups carry a signal it rolls out tasks not yet tried in it,
at most three times, and the update gets all of them. The rounds depend on stored scores alone, so a resumed run
takes the same ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel.config import LearnerConfig, TrainingConfig
from tracewheel.scoring.score import read_scores

SAME = 1e-8
MAX_REFILLS = 3


def refill_size(
    learner: LearnerConfig, training: TrainingConfig, scores: Sequence[Path], *, group_size: int, used: int = 0
) -> int:
    """How many more tasks an iteration rolls out; 0 when enough groups carry a signal.

    As many as would do at the share of groups that have carried a signal so far, at most
    `training.tasks_per_iteration`, and no more than the training's budget of episodes has room for.

    Args:
        scores: The files of the iteration's rounds so far.
        group_size: Episodes a task.
        used: How many episodes of the budget are used, those of these rounds included.
    """
    settings = learner.zero_variance if learner.kind != "dpo" else None
    if settings is None or settings.kind != "dynamic" or len(scores) > MAX_REFILLS:
        return 0
    groups, signal = count_groups(scores)
    missing = settings.min_groups - signal
    if missing <= 0:
        return 0
    most, budget = training.tasks_per_iteration, training.episodes
    if budget is not None:
        most = min(most, max(0, budget - used) // group_size)
    return min(most, math.ceil(missing * groups / signal)) if signal else most


def sampling_figures(learner: LearnerConfig, scores: Sequence[Path]) -> dict[str, float]:
    """Metrics of an iteration's dynamic sampling; empty when the profile does not use it.

    `sampling_capped` is 1 when there are fewer groups with a signal than were asked for: the rounds, the tasks
    or the budget ran out.
    """
    if learner.kind == "dpo" or learner.zero_variance.kind != "dynamic":
        return {}
    groups, signal = count_groups(scores)
    return {
        "sampling_rounds": float(len(scores)),
        "sampled_groups": float(groups),
        "signal_groups": float(signal),
        "sampling_capped": float(signal < learner.zero_variance.min_groups),
    }


def success_of_rounds(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of successes over the scored episodes of an iteration; None when nothing was scored.

    Args:
        rounds: The metrics of the iteration's scorings.
    """
    known = [metrics for metrics in rounds if metrics["scored"]]
    if len(known) == 1:
        return float(known[0]["success"])
    successes = sum(metrics["success"] * metrics["scored"] for metrics in known)
    return float(successes / sum(metrics["scored"] for metrics in known)) if known else None


def count_groups(scores: Sequence[Path]) -> tuple[int, int]:
    """How many groups have a scored sample, and how many of them carry a signal; unscored samples are left out.

    With greedy baselines (ReMax) a group carries a signal when a sample differs from its baseline.
    """
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for file in scores:
        for score in read_scores(file):
            if score.total is not None and math.isfinite(score.total):
                rewards[score.group] += [score.total] if score.baseline is None else [score.total, score.baseline]
    return len(rewards), sum(max(values) - min(values) > SAME for values in rewards.values())
