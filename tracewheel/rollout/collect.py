"""The collect stage of asynchronous training: an iteration's claimed groups as the files that a rollout writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tracewheel.core.files import write_json, write_records
from tracewheel.core.types import Trajectory, not_failed
from tracewheel.rollout.rollout import TRAJECTORIES_FILE, rollout_metrics
from tracewheel.rollout.training_tasks import write_variants
from tracewheel.rollout.trajectory_queue import ClaimedGroups


def collect(claimed: ClaimedGroups, out: Path) -> dict[str, Any]:
    """Write `trajectories.parquet`, the curriculum's variants among their tasks, and `metrics.json`, which it returns.

    The metrics are a rollout's and, over the sampled tokens, `staleness_mean` and `staleness_max`: by how many updates the
    policy that sampled a token is older than the updated one. `mixed_episodes` were sampled by more than one policy,
    `dropped_groups` were too old.

    Raises:
        DataError, InfrastructureError: too many episodes failed.
    """
    trajectories = claimed.trajectories()
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES_FILE, trajectories, Trajectory)
    write_variants(out, claimed.variants())
    metrics = rollout_metrics(trajectories) | age_figures(not_failed(trajectories), claimed.version)
    metrics["dropped_groups"] = claimed.dropped
    write_json(out / "metrics.json", metrics)
    return metrics


def age_figures(trajectories: list[Trajectory], version: int) -> dict[str, float]:
    """The age of the sampled tokens, and how many episodes have tokens of several ages."""
    versions = [np.array([v for v in trajectory.token_versions() if v >= 0]) for trajectory in trajectories]
    ages = version - np.concatenate([np.zeros(0), *versions])
    mixed = sum(len(np.unique(own)) > 1 for own in versions)
    if not len(ages):
        return {"mixed_episodes": mixed}
    return {"staleness_mean": float(ages.mean()), "staleness_max": float(ages.max()), "mixed_episodes": mixed}
