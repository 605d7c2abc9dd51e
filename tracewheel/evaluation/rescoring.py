"""Logged episodes under another policy: its log-probabilities of what was sampled, from the learner's own forward passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tracewheel.config import PolicyConfig
from tracewheel.core.errors import DataError
from tracewheel.evaluation.off_policy import LoggedEpisodes
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.scored_trajectories import rewards_of, with_finite_logprobs
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_for_generation

if TYPE_CHECKING:
    import pandas as pd

TOKENS = 8192  # in a pass


@dataclass(frozen=True)
class Usable:
    """The episodes that an estimate can use, and how many of the others there are, by reason."""

    frame: pd.DataFrame
    left_out: dict[str, int]


def usable_episodes(trajectories: pd.DataFrame) -> Usable:
    """Leave out what no importance weight fits.

    Args:
        trajectories: Rows of `Trajectory.to_record`, with `total`.
    """
    turns = trajectories["turns"].map(_turns)
    reasons = {
        "the infrastructure failed": trajectories["stop_reason"].eq("infrastructure_failed").to_numpy(),
        "unscored": np.isnan(rewards_of(trajectories)),
        "no sampled token": ~trajectories["action_mask"].map(any).to_numpy(bool),
        "tokens chosen by exploration": turns.map(lambda own: any(turn.get("forced") for turn in own)).to_numpy(bool),
        "log-probabilities are not finite": ~with_finite_logprobs(trajectories),
    }
    left = np.ones(len(trajectories), dtype=bool)
    counts = {}
    for reason, found in reasons.items():
        counts[reason] = int((found & left).sum())
        left &= ~found
    return Usable(trajectories[left].reset_index(drop=True), {reason: count for reason, count in counts.items() if count})


def logged_episodes(
    trajectories: pd.DataFrame, logprobs: Sequence[np.ndarray], *, with_turn_rewards: bool = True
) -> LoggedEpisodes:
    """The input of `off_policy.preview`.

    Args:
        trajectories: Of `usable_episodes`.
        logprobs: The challenger's log-probabilities [T_i] of each row's tokens, of `rescored`.
        with_turn_rewards: Whether rewards of turns are used, where every row has them.
    """
    turns = [_turns(row) for row in trajectories["turns"]]
    ratios = []
    for own, fresh, stored, mask in zip(turns, logprobs, trajectories["logprobs"], trajectories["action_mask"], strict=True):
        acted = np.asarray(mask, dtype=bool)
        difference = np.where(acted, fresh - np.asarray(stored, dtype=np.float64), 0.0)
        ratios.append(np.array([difference[turn["start"] : turn["end"]].sum() for turn in own]))
    rewards = rewards_of(trajectories)
    return LoggedEpisodes(
        ratios,
        rewards,
        trajectories["task_id"].to_numpy(str),
        trajectories["family"].fillna("").to_numpy(str) if "family" in trajectories else np.full(len(rewards), ""),
        _turn_rewards(trajectories, turns, rewards) if with_turn_rewards else None,
    )


def rescored(
    config: PolicyConfig, policy: PolicyRef, trajectories: pd.DataFrame, *, temperature: float | None = None
) -> list[np.ndarray]:
    """A policy's log-probabilities [T_i] of each row's sampled tokens, 0 elsewhere, at the rows' own temperatures.

    Args:
        config: How the policy is loaded.
        policy: The policy.
        trajectories: Rows of `Trajectory.to_record`.
        temperature: The policy's own temperature, if it is to be another.

    Raises:
        AdapterMismatchError: the adapter belongs to another base.
        DataError: a token is none of the base's.
    """
    return score_tokens(load_for_generation(config, policy), trajectories, temperature=temperature)


def score_tokens(model: Any, trajectories: pd.DataFrame, *, temperature: float | None = None) -> list[np.ndarray]:
    """`rescored` with a model that is loaded."""
    vocabulary = model.config.get_text_config().vocab_size
    for name, ids in zip(trajectories["id"], trajectories["token_ids"], strict=True):
        if len(ids) and max(ids) >= vocabulary:
            raise DataError(f"episode {name}: has token {max(ids)}, and the base's vocabulary ends before {vocabulary}")
    frame = trajectories if temperature is None else trajectories.assign(temperature=temperature)
    layout: Layout = "shared_prefix"
    found = [np.zeros(len(ids)) for ids in frame["token_ids"]]
    with torch.no_grad():
        for batch in micro_batches(frame, [0.0] * len(frame), TOKENS, layout=layout):
            batch = batch.to(str(model.device))
            values = action_logprobs(model, batch, layout=layout)[0].double().cpu().numpy()
            for row, scored in zip(batch.rows.tolist(), values, strict=True):
                found[row] = scored[: len(found[row])]
    return found


def _turn_rewards(
    trajectories: pd.DataFrame, turns: list[list[dict[str, Any]]], rewards: np.ndarray
) -> list[np.ndarray] | None:
    """The rewards of each episode's turns; what they lack of its reward (penalties) falls to the last. None unless all have."""
    if "turn_rewards" not in trajectories:
        return None
    given = []
    for own, found, reward in zip(turns, trajectories["turn_rewards"], rewards, strict=True):
        if found is None or not hasattr(found, "__len__") or len(found) != len(own):
            return None
        values = np.asarray(found, dtype=np.float64).copy()
        values[-1] += reward - values.sum()
        given.append(values)
    return given


def _turns(stored: Any) -> list[dict[str, Any]]:
    return list(json.loads(stored)) if isinstance(stored, str) else list(stored)
