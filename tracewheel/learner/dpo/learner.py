"""Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) on an iteration's own rollouts.

A pair is a success and a failure on the same task; TRL computes the loss. The state folder holds all that the next
update needs, and every choice follows from (seed, iteration), so a repeated update gives the same bytes.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewheel.config import DpoConfig, UpdateConfig, UpdateSections
from tracewheel.core.forks import rows
from tracewheel.learner.batch import REPLAY_WEIGHT, TokenisedText, replay_text
from tracewheel.learner.dpo.preferences import Pair, preference_pairs
from tracewheel.learner.kernels.packing import Layout, common_length
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import policy_of

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.learner.backends.backend import Backend
    from tracewheel.learner.batch import Batch
    from tracewheel.learner.models import Models


@dataclass(frozen=True)
class PairBatch:
    """A micro-batch of pairs; `share` is its share of the optimiser step's pairs, 0 for a filler."""

    pairs: list[Pair]
    share: float


@dataclass(frozen=True)
class PairStep:
    """An optimiser step: its micro-batches, and the replay text that goes with them."""

    batches: list[PairBatch]
    replay: list[Batch]

    @property
    def pairs(self) -> list[Pair]:
        return [pair for batch in self.batches for pair in batch.pairs]


def optimiser_steps(
    settings: UpdateConfig, pairs: list[Pair], text: TokenisedText, rng: random.Random, processes: int = 1
) -> list[PairStep]:
    """The steps of an update, each on single pairs or on all pairs of some groups.

    The number of a step's micro-batches is a multiple of `processes`. Each holds at most
    `micro_batch_tokens` tokens, or one pair.
    """
    units = _units(pairs, settings.minibatch_of)
    n_steps = min(settings.minibatches, len(units))
    steps = []
    for _ in range(settings.epochs if units else 0):
        order = list(range(len(units)))
        rng.shuffle(order)
        for number in range(n_steps):
            chosen = [pair for index in order[number::n_steps] for pair in units[index]]
            parts = _micro_batches(chosen, settings, processes)
            batches = [PairBatch(part or chosen[:1], len(part) / len(chosen)) for part in parts]
            steps.append(PairStep(batches, text.draw(rng)))
    return steps


def _units(pairs: list[Pair], unit: str) -> list[list[Pair]]:
    """The pairs that are not drawn apart."""
    if unit == "trajectories":
        return [[pair] for pair in pairs]
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    return list(groups.values())


def _micro_batches(pairs: list[Pair], settings: UpdateConfig, processes: int) -> list[list[Pair]]:
    """The pairs in parts of at most `micro_batch_tokens`; the largest is halved until there are enough, empty ones fill up.

    Pairs that pass through the model at less cost together, of one beginning or of similar length, are neighbours.
    """
    layout = settings.layout
    parts: list[list[Pair]] = []
    for pair in sorted(pairs, key=_sequences if layout == "shared_prefix" else _length):
        if parts and _tokens([*parts[-1], pair], layout) <= settings.micro_batch_tokens:
            parts[-1].append(pair)
        else:
            parts.append([pair])
    while len(parts) % processes:
        largest = max(parts, key=len)
        half = largest[len(largest) // 2 :] if len(largest) > 1 else []
        del largest[len(largest) - len(half) :]
        parts.append(half)
    return parts


def _tokens(pairs: list[Pair], layout: Layout) -> int:
    """The tokens of a pass: `padded` counts padding and each row of a fork, `shared_prefix` a common beginning once."""
    if layout == "padded":
        sides = [(pair, side) for pair in pairs for side in (pair.chosen, pair.rejected)]
        lengths = [len(row) for pair, side in sides for row in rows(side.forks, len(pair.prompt_ids) + len(side.token_ids))]
        return len(lengths) * max(lengths)
    sequences = sorted(sequence for pair in pairs for sequence in _sequences(pair))
    tokens = sum(map(len, sequences))
    if layout == "shared_prefix":
        tokens -= sum(common_length(one, other) for one, other in itertools.pairwise(sequences))
    return tokens


def _sequences(pair: Pair) -> list[list[int]]:
    return [pair.prompt_ids + side.token_ids for side in (pair.chosen, pair.rejected)]


def _length(pair: Pair) -> int:
    return max(map(len, _sequences(pair)))


MARGIN = 0.5  # the least difference of the rewards of a pair
OPTIMIZER = "optimizer.pt"


def learn_dpo(config: UpdateSections, trajectories: pd.DataFrame, files: UpdateFiles, iteration: int) -> dict[str, float]:
    """Update the policy once on the preferences among an iteration's trajectories.

    Log-probabilities are at temperature 1, whatever the rollout's was: a preference is about the policy itself,
    not about how it explored.

    Args:
        config: The profile; `config.learner` is a `DpoConfig`.
        trajectories: Trajectory columns with the reward in `total`.
        files: State and reference to start from, and the folder that gets `adapter/` (or `model/`) and `optimizer.pt`.
        iteration: Number of this update; it fixes the random choices and the new policy version.

    Returns:
        `pairs`, `steps` and `zero_variance_share` (of groups without a pair). With steps also the means over
        them of the loss, TRL's figures (implicit rewards, accuracy, margin, entropy), `replay_loss` and
        `grad_norm`, and the mismatch of sampler and trainer.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        SamplerMismatchError: sampler and trainer disagree, and the profile says to stop. Nothing is written.
    """
    from tracewheel.learner.backends.select import make_policy_backend, models_loading
    from tracewheel.learner.kernels.language_model import checkpoint_activations
    from tracewheel.learner.models import load_models

    settings = config.learner
    assert isinstance(settings, DpoConfig)
    rng = random.Random(f"dpo-{config.seed}-{iteration}")
    pairs = preference_pairs(trajectories, per_group=settings.pairs_per_group, margin=MARGIN, rng=rng)
    groups = set(trajectories["group"].astype(str))
    figures = {
        "pairs": float(len(pairs)),
        "zero_variance_share": 1.0 - len({pair.group for pair in pairs}) / max(1, len(groups)),
    }
    with models_loading(settings, config.policy) as policy:
        models = load_models(config.model_copy(update={"policy": policy}), files.state, files.reference)
    if settings.gradient_checkpointing:
        checkpoint_activations(models.model)
    backend = make_policy_backend(config, models)
    if (files.state / OPTIMIZER).is_file():
        backend.load(files.state / OPTIMIZER)
    steps = optimiser_steps(settings, pairs, replay_text(settings, config.policy.base), rng, backend.world_size)
    if steps:
        measured = steps if settings.mismatch.action == "stop" else steps[:1]
        version = policy_of(files.state, config.policy.base).version
        figures |= _mismatch(config, backend, version, _trajectories_of(measured, trajectories))
        figures |= _train(config, models, backend, steps, learning_rate(config, iteration))
    else:
        figures["steps"] = 0.0
    _save(config, models, backend, files, iteration)
    return figures


def _trajectories_of(steps: list[PairStep], trajectories: pd.DataFrame) -> pd.DataFrame:
    sides = (side for step in steps for pair in step.pairs for side in (pair.chosen, pair.rejected))
    return trajectories.iloc[sorted({side.row for side in sides})]


def _mismatch(config: UpdateSections, backend: Backend, version: int, trajectories: pd.DataFrame) -> dict[str, float]:
    """The mismatch of sampler and trainer on these trajectories, and the action taken."""
    import torch

    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs
    from tracewheel.learner.mismatch import MismatchStatistics, act_on, resolved
    from tracewheel.learner.per_token import pad_per_token
    from tracewheel.learner.policy_versions import current_tokens
    from tracewheel.learner.turn_masks import with_masks

    current = current_tokens(trajectories, version)
    trajectories = with_masks(trajectories, config.policy.base)
    found = MismatchStatistics()
    with torch.no_grad():
        settings = config.learner
        batches = micro_batches(trajectories, [0.0] * len(trajectories), settings.micro_batch_tokens, layout=settings.layout)
        for batch in backend.shard([batch.to(config.policy.device) for batch in batches]):
            logprobs, _ = action_logprobs(backend.model, batch, layout=settings.layout)
            found.observe_batch(logprobs, batch, pad_per_token(current, batch))
    found = sum(backend.gather(found), MismatchStatistics())
    return found.figures() | act_on(resolved(config), found.figures())


def _train(config: UpdateSections, models: Models, backend: Backend, steps: list[PairStep], rate: float) -> dict[str, float]:
    """The optimiser steps; returns the means of their figures."""
    from tracewheel.learner.dpo.loss import PreferenceLoss
    from tracewheel.learner.per_token import add_cross_entropy
    from tracewheel.policy.loading import policy_renderer

    settings, device = config.learner, config.policy.device
    assert isinstance(settings, DpoConfig)
    tokenizer = policy_renderer(config.policy).tokenizer
    preference_loss = PreferenceLoss(settings, tokenizer, device)
    sums: defaultdict[str, float] = defaultdict(float)
    norms = 0.0
    for step in steps:
        for batch in step.batches[backend.rank :: backend.world_size]:
            with models.reference() as reference:
                references = preference_loss.references(reference, batch.pairs)
            loss, figures = preference_loss(backend.model, batch.pairs, references)
            backend.backward(batch.share * loss)
            for name, value in figures.items():
                sums[name] += batch.share * value
        replay = [batch.to(device) for batch in step.replay]
        sums["replay_loss"] += add_cross_entropy(backend, replay, settings.layout, REPLAY_WEIGHT)
        norms += backend.step(rate)
    means = {name: value / len(steps) for name, value in sorted(backend.total(dict(sums)).items())}
    means["loss"] = means["policy_loss"] + REPLAY_WEIGHT * means["replay_loss"]
    return means | {"grad_norm": norms / len(steps), "steps": float(len(steps))}


def _save(config: UpdateSections, models: Models, backend: Backend, files: UpdateFiles, version: int) -> None:
    """Write the policy and the optimiser's state; every process calls it, and the first writes."""
    if not backend.rank:
        files.out.mkdir(parents=True, exist_ok=True)
    weights = backend.weights()
    backend.save(files.out / OPTIMIZER)
    if not backend.rank:
        models.save(files.out, config.policy.base, version, weights)
    backend.gather(None)  # no process reads the files before they are written
