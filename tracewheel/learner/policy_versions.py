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


def age(versions: np.ndarray, version: int, iteration: int) -> np.ndarray:
    """How many updates lie between the policies of these versions and the policy being updated.

    A run's first policy may have a higher version than those that follow, because an earlier run trained it. So a
    version above that of the updated policy means the first policy, which is as old as the run.

    Args:
        versions: Any shape.
        version: Of the policy being updated.
        iteration: Number of the update.
    """
    return np.where(versions > version, iteration - 1, version - versions)


def staleness(trajectories: pd.DataFrame, iteration: int) -> np.ndarray:
    """The age [N] of each trajectory's oldest turn, in versions, in an iteration."""
    return age(trajectories["policy_version"].to_numpy(), iteration - 1, iteration)


def staleness_figures(trajectories: pd.DataFrame, version: int, iteration: int) -> dict[str, float]:
    """Mean and largest age over sampled tokens of known version; empty without such tokens."""
    ages = [age(versions[versions >= 0], version, iteration) for versions in versions_of(trajectories)]
    tokens = np.concatenate([np.zeros(0), *ages])
    return {"staleness_mean": float(tokens.mean()), "staleness_max": float(tokens.max())} if len(tokens) else {}
