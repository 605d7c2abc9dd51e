"""Logged episodes under another policy: its log-probabilities of what was sampled, from the learner's own forward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracewheel.config import PolicyConfig
from tracewheel.core.errors import DataError
from tracewheel.policy.adapters import PolicyRef

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.learner.kernels.packing import Layout

TOKENS = 8192  # in a pass


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
    from tracewheel.learner.turn_masks import with_masks
    from tracewheel.policy.loading import load_for_generation

    held = with_masks(trajectories, policy.base)
    return score_tokens(load_for_generation(config, policy), held, temperature=temperature)


def score_tokens(model: Any, trajectories: pd.DataFrame, *, temperature: float | None = None) -> list[np.ndarray]:
    """`rescored` with a model that is loaded; rows that grammars held have the column of `with_masks`."""
    import torch

    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs

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
