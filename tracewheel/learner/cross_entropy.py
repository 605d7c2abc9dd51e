"""The cross-entropy of text: the loss of the warm start, and of the replay text beside an update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewheel.learner.batch import Batch, step_totals
from tracewheel.learner.kernels.token_logprobs import action_logprobs

if TYPE_CHECKING:
    from tracewheel.learner.backends.backend import Backend
    from tracewheel.learner.kernels.packing import Layout


def add_cross_entropy(backend: Backend, batches: list[Batch], layout: Layout, weight: float = 1.0) -> float:
    """Add the gradient of the weighted mean cross-entropy over the action tokens of all batches.

    Args:
        backend: Divides the batches among processes.
        batches: Those of an optimiser step, on the model's device.
        layout: How they lie in memory while they pass through the model.
        weight: Multiplies the gradient.

    Returns:
        This process's part of the unweighted mean; the parts of all processes add up to it.
    """
    tokens = max(1, step_totals(batches).tokens)
    total = 0.0
    for batch in backend.shard(batches):
        loss = -action_logprobs(backend.model, batch, layout=layout)[0].sum() / tokens
        backend.backward(weight * loss)
        total += loss.item()
    return total
