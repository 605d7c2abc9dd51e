"""Trials of learning rates: one update each from the starting policy, and how far it moved on tasks it did not learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.config import RateTrialSections, UpdateSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import write_json
from tracewheel.learner.update_files import UpdateFiles

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.learner.learner import Learner

KL_MOST = 0.01  # nats a token: a rate that moves the policy further in one update is too high
TRIALS_FILE = "trials.json"


def try_rates(config: RateTrialSections, files: UpdateFiles) -> dict[str, Any]:
    """Choose a learning rate by trials.

    Args:
        config: The profile; `rate_trials` says which rates.
        files: The first iteration's trajectories and scores, and the starting policy. `out` gets `trials.json`.

    Returns:
        `learning_rate`, the chosen one, and `trials`: of each rate KL(start || updated) on the held-back tasks in nats a
        token, the gradient norm and the entropy of its update.

    Raises:
        DataError: no group's rewards differ, or there is only one group.
    """
    import torch

    from tracewheel.learner.auto import chosen
    from tracewheel.learner.learner import Learner
    from tracewheel.learner.scored_trajectories import read_scored_trajectories

    torch.set_num_threads(config.threads)
    trajectories = read_scored_trajectories(files.trajectories, files.scores)
    learnt, (learner_settings, _) = to_learn_from(trajectories), chosen(config.learner, files.state, trajectories, iteration=1)
    trials = []
    for rate in config.rate_trials.rates:
        settings = learner_settings.model_copy(update={"learning_rate": rate})
        sections = UpdateSections.of(config).model_copy(update={"learner": settings})
        learner = Learner(sections, files.state, files.reference)
        figures = learner.learn(trajectories[learnt].reset_index(drop=True), iteration=1)
        moved = divergence(learner, trajectories[~learnt].reset_index(drop=True))
        trials.append({"rate": rate, "kl": moved, **{name: figures[name] for name in ("grad_norm", "entropy")}})
    found = {"learning_rate": choose_rate(trials, KL_MOST), "trials": trials}
    write_json(files.out / TRIALS_FILE, found)
    return found


def to_learn_from(trajectories: pd.DataFrame) -> pd.Series[bool]:
    """Which rows the trials learn from: every other group whose rewards differ. The rest is held back.

    Raises:
        DataError: no group's rewards differ, or there is only one group.
    """
    spread = trajectories.groupby("group", sort=False)["total"].agg(lambda totals: totals.max() - totals.min())
    groups = spread.index[spread > 0].tolist()
    if not groups or len(spread) < 2:
        raise DataError(
            "learner.learning_rate: auto needs two tasks, and one whose rewards differ, among those of the first iteration; "
            "set a number, or raise rollout.group_size or training.tasks_per_iteration"
        )
    return trajectories["group"].isin(groups[::2])


def choose_rate(trials: Sequence[Mapping[str, float]], kl_most: float) -> float:
    """The largest rate up to which KL stays within its bound; the lowest where none does.

    Args:
        trials: `rate` and `kl` of each, by ascending rate.
        kl_most: The bound, in nats a token.
    """
    chosen = trials[0]["rate"]
    for trial in trials:
        if not (math.isfinite(trial["kl"]) and trial["kl"] <= kl_most):
            break
        chosen = trial["rate"]
    return float(chosen)


def divergence(learner: Learner, trajectories: pd.DataFrame) -> float:
    """KL(sampling policy || learner's policy) over the action tokens of its samples, in nats a token.

    The K3 estimate (Schulman 2020): the mean of r - 1 - log r, r being the ratio of the learner's to the sampler's probability.
    """
    import torch

    from tracewheel.learner.trajectory_table import TrajectoryTable

    with torch.no_grad():
        table = learner.passes.with_proximal(TrajectoryTable(trajectories))
    total = tokens = 0.0
    columns = (trajectories["logprobs"], trajectories["action_mask"], table.per_token["proximal"])
    for before, mask, now in zip(*columns, strict=True):
        acted = torch.as_tensor(list(mask), dtype=torch.bool)
        log_ratio = (now.cpu().double()[: len(acted)] - torch.as_tensor(list(before), dtype=torch.float64))[acted]
        total += float((log_ratio.exp() - 1 - log_ratio).sum())
        tokens += int(acted.sum())
    return total / max(tokens, 1)
