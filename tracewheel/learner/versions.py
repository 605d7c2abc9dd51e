"""Which policy version sampled each token of an update's trajectories, and how old that makes it."""

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
    """The version that sampled each token of each row, -1 where none did or none is known."""
    if "turns" not in table:
        return [np.full(len(mask), -1) for mask in table["action_mask"]]
    found = []
    for mask, turns in zip(table["action_mask"], table["turns"], strict=True):
        versions = token_versions(json.loads(turns) if isinstance(turns, str) else list(turns), len(mask))
        found.append(np.where(np.asarray(mask, dtype=bool), versions, -1))
    return found


def current_tokens(table: pd.DataFrame, *current: int) -> list[Tensor]:
    """For each row [T]: 1 where the policy of this version, or of these, sampled the token."""
    return [torch.from_numpy(np.isin(versions, current).astype(np.float32)) for versions in versions_of(table)]


def age(versions: np.ndarray, version: int, iteration: int) -> np.ndarray:
    """How many updates lie between the policies of some versions and the one that is updated.

    A run's first policy may carry a higher number than those that follow, because an earlier run trained it: a
    version above the one that is updated is that policy, which is as old as the run.

    Args:
        versions: Any shape.
        version: That of the policy that is updated.
        iteration: Number of the update.
    """
    return np.where(versions > version, iteration - 1, version - versions)


def staleness(samples: pd.DataFrame, iteration: int) -> np.ndarray:
    """How many versions [N] the oldest turn of each trajectory lies behind the policy that an iteration updates."""
    return age(samples["policy_version"].to_numpy(), iteration - 1, iteration)


def staleness_figures(samples: pd.DataFrame, version: int, iteration: int) -> dict[str, float]:
    """Mean and largest age over the sampled tokens whose version is known; nothing when there are none."""
    ages = [age(versions[versions >= 0], version, iteration) for versions in versions_of(samples)]
    tokens = np.concatenate([np.zeros(0), *ages])
    return {"staleness_mean": float(tokens.mean()), "staleness_max": float(tokens.max())} if len(tokens) else {}
