"""The optimiser steps of a DPO update: preference pairs and replay text, cut into micro-batches."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewheel.config import UpdateConfig
from tracewheel.core.forks import rows
from tracewheel.learner.dpo.preferences import Pair
from tracewheel.learner.kernels.packing import Layout, common_length
from tracewheel.learner.replay_text import ReplayText

if TYPE_CHECKING:
    from tracewheel.learner.batch import Batch


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
    settings: UpdateConfig, pairs: list[Pair], text: ReplayText, rng: random.Random, processes: int = 1
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
