"""The policy version that sampled each token of an update's trajectories, and the token's age."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tracewheel.core.types import token_versions

if TYPE_CHECKING:
    import pandas as pd


def versions_of(table: pd.DataFrame) -> list[np.ndarray]:
    """The version that sampled each token of each row; -1 for observations and unknown versions."""
    if "turns" not in table:
        return [np.full(len(mask), -1) for mask in table["action_mask"]]
    found = []
    for mask, turns in zip(table["action_mask"], table["turns"], strict=True):
        versions = token_versions(json.loads(turns) if isinstance(turns, str) else list(turns), len(mask))
        found.append(np.where(np.asarray(mask, dtype=bool), versions, -1))
    return found


def current_tokens(table: pd.DataFrame, *current: int) -> list[Tensor]:
    """For each row [T]: 1 where a policy of one of these versions sampled the token."""
    return [torch.from_numpy(np.isin(versions, current).astype(np.float32)) for versions in versions_of(table)]


def version_in_run(version: int, iteration: int) -> int:
    """The version of the policy that an update starts from, as the run counts.

    Versions 1 to `iteration` - 1 are this run's. A higher one is the run's first policy, which an earlier run trained: 0.

    Args:
        version: The one that the state names.
        iteration: Number of the update.
    """
    return 0 if version >= iteration else version


def age(versions: np.ndarray, version: int, iteration: int) -> np.ndarray:
    """How many updates lie between the policies of these versions and the policy that is updated.

    It counts versions, not iterations: after a return to an earlier policy that one's tokens have age 0, and those of the
    policies that were given up are as old as the updates that were undone.

    Args:
        versions: Any shape.
        version: Of the policy that is updated.
        iteration: Number of the update.
    """
    return np.abs(version_in_run(version, iteration) - np.where(versions >= iteration, 0, versions))


def staleness(trajectories: pd.DataFrame, version: int, iteration: int) -> np.ndarray:
    """The age [N] of each trajectory's oldest turn, in versions."""
    return age(trajectories["policy_version"].to_numpy(), version, iteration)


def staleness_figures(trajectories: pd.DataFrame, version: int, iteration: int) -> dict[str, float]:
    """Mean and largest age over sampled tokens of known version; empty without such tokens."""
    ages = [age(versions[versions >= 0], version, iteration) for versions in versions_of(trajectories)]
    tokens = np.concatenate([np.zeros(0), *ages])
    return {"staleness_mean": float(tokens.mean()), "staleness_max": float(tokens.max())} if len(tokens) else {}
