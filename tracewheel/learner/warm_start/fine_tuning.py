"""Supervised fine-tuning: the cross-entropy of the masked tokens, in steps of a fixed number of examples.

A step's examples are cut into micro-batches by their tokens, so memory depends on `micro_batch_tokens` and not on
`batch_size`. The loss is the mean over the tokens of the whole step, so the cut does not change it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from tracewheel.config import WarmStartConfig, WarmStartSections
from tracewheel.core.progress import report
from tracewheel.learner.backends import processes
from tracewheel.learner.backends.select import make_backend, models_loading
from tracewheel.learner.batch import text_batches
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.per_token import add_cross_entropy
from tracewheel.learner.warm_start.demonstrations import Example
from tracewheel.policy.adapters import ADAPTER, MODEL, peft_config, write_adapter, write_full_model
from tracewheel.policy.chat_template import write_template
from tracewheel.policy.loading import load_base
from tracewheel.policy.lora_products import fuse_adapters
from tracewheel.policy.probe import write_probe

if TYPE_CHECKING:
    from tracewheel.learner.backends.backend import Backend

MOST_WARMUP = 10


def fine_tune(
    config: WarmStartSections, examples: list[Example], out: Path, begin: Callable[[Any], object] | None = None
) -> dict[str, float]:
    """Train a fresh adapter, or the whole base, on the masked tokens of examples; write `adapter/` or `model/`.

    Args:
        examples: `input_ids` and `assistant_masks`, lists of equal length.
        begin: As in `warm_start`.

    Returns:
        `steps`, `tokens` in the loss of an epoch, and `final_loss`: the mean over the steps of the last epoch, in nats a
        token.

    Raises:
        DataError: an example's first token is in its loss.
    """
    settings, policy = config.warm_start, config.policy
    backend = _backend(config, begin)
    rows = pd.DataFrame(examples)
    batches = list(_steps(len(rows), settings, config.seed))
    losses, tokens = [], 0
    # With a few examples, ten steps may be all of the training.
    warmup = min(MOST_WARMUP, len(batches) // 10) if settings.warmup_steps is None else settings.warmup_steps
    report(0, len(batches), "steps")
    with _lower_precision(config):
        for number, chosen in enumerate(batches):
            rate = settings.learning_rate * linear_schedule(number, warmup, len(batches))
            losses.append(_step(settings, backend, rows.iloc[chosen], rate, policy.device))
            tokens += sum(map(sum, rows["assistant_masks"].iloc[chosen]))
            report(number + 1, len(batches), "steps", tokens)
    _save(config, backend, out)
    last = losses[-(len(losses) // settings.epochs) :]
    return {
        "steps": float(len(losses)),
        "tokens": float(sum(map(sum, rows["assistant_masks"]))),
        "final_loss": sum(last) / len(last),
    }


def write_untrained(config: WarmStartSections, out: Path) -> None:
    """Write a fresh adapter, which changes nothing yet, or the whole base."""
    _save(config, _backend(config), out)


def _backend(config: WarmStartSections, begin: Callable[[Any], object] | None = None) -> Backend:
    """The fresh model on the profile's backend."""
    model = fresh_model(config)
    if begin:
        begin(model)
    if config.warm_start.gradient_checkpointing:
        checkpoint_activations(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return make_backend(config.warm_start, config.policy.device, model, parameters)


def linear_schedule(step: int, warmup: int, steps: int) -> float:
    """The share of the learning rate in a step, counted from 0: rising over the first `warmup`, then falling to 0."""
    return step / warmup if step < warmup else (steps - step) / max(1, steps - warmup)


def fresh_model(config: WarmStartSections) -> Any:
    """The base with a new adapter, or with all weights trainable in float32, because small steps would be rounded away."""
    from peft import get_peft_model

    settings = config.warm_start
    with models_loading(settings, config.policy) as policy, torch.random.fork_rng([]):
        torch.manual_seed(config.seed)
        if settings.weights == "full":
            return load_base(policy, policy.base, "float32").requires_grad_(True)
        return fuse_adapters(get_peft_model(load_base(policy, policy.base), peft_config(settings.lora)))


def _steps(examples: int, settings: WarmStartConfig, seed: int) -> Iterator[list[int]]:
    """The examples of each optimiser step, in another order in each epoch."""
    for epoch in range(settings.epochs):
        order = list(range(examples))
        random.Random(f"warm-start-{seed}-{epoch}").shuffle(order)
        for start in range(0, examples, settings.batch_size):
            yield order[start : start + settings.batch_size]


def _step(settings: WarmStartConfig, backend: Backend, rows: pd.DataFrame, rate: float, device: str) -> float:
    """One optimiser step; returns its loss."""
    batches = [batch.to(device) for batch in text_batches(rows, settings.micro_batch_tokens, settings.layout)]
    loss = add_cross_entropy(backend, batches, settings.layout)
    backend.step(rate)
    return backend.total({"loss": loss})["loss"]


def _lower_precision(config: WarmStartSections) -> torch.autocast:
    """In full training the weights stay in float32 and only the passes use the profile's type."""
    policy, lower = config.policy, config.warm_start.weights == "full" and config.policy.dtype != "float32"
    return torch.autocast(policy.device.partition(":")[0], dtype=getattr(torch, policy.dtype) if lower else None, enabled=lower)


def _save(config: WarmStartSections, backend: Backend, out: Path) -> None:
    """Write the weights and their probe; every process calls it, and the first writes."""
    base, weights = config.policy.base, backend.weights()
    if processes.is_first():
        whole = config.warm_start.weights == "full"
        if whole:
            write_full_model(backend.model, out / MODEL, base, version=0, weights=weights)
        else:
            write_adapter(backend.model, out / ADAPTER, "default", base, version=0, weights=weights)
        write_template(config.policy, out / (MODEL if whole else ADAPTER))
        if processes.world_size() == 1:  # no process of several can make a pass alone
            write_probe(backend.model, out / (MODEL if whole else ADAPTER))
    backend.gather(None)  # no process reads the files before they are written
