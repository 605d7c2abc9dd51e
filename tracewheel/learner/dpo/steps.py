"""The optimiser steps of a DPO update: preference pairs and replay text, cut into micro-batches."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewheel.config import UpdateConfig
from tracewheel.core.forks import rows
from tracewheel.learner.dpo.preferences import Pair
from tracewheel.learner.kernels.packing import Layout
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
    """The steps of an update. Their number of micro-batches is a multiple of `processes`.

    A micro-batch holds at most `micro_batch_tokens` tokens, or one pair.
    """
    if not pairs:
        return []
    n_steps = min(settings.minibatches, len(pairs))
    fitting = max(1, settings.micro_batch_tokens // max(_tokens(pair, settings.layout) for pair in pairs))
    steps = []
    for _ in range(settings.epochs):
        order = list(range(len(pairs)))
        rng.shuffle(order)
        for number in range(n_steps):
            chosen = sorted((pairs[index] for index in order[number::n_steps]), key=_length)
            n_batches = -(-len(chosen) // (fitting * processes)) * processes
            cuts = [len(chosen) * part // n_batches for part in range(n_batches + 1)]
            parts = [chosen[start:end] for start, end in itertools.pairwise(cuts)]
            batches = [PairBatch(part or chosen[:1], len(part) / len(chosen)) for part in parts]
            steps.append(PairStep(batches, text.draw(rng)))
    return steps


def _tokens(pair: Pair, layout: Layout) -> int:
    """The tokens of a pair's pass: `padded` counts padding and each row of a fork, `shared_prefix` the prompt once."""
    if layout == "padded":
        sides = (pair.chosen, pair.rejected)
        lengths = [len(row) for side in sides for row in rows(side.forks, len(pair.prompt_ids) + len(side.token_ids))]
        return len(lengths) * max(lengths)
    prompts = 1 if layout == "shared_prefix" else 2
    return prompts * len(pair.prompt_ids) + len(pair.chosen.token_ids) + len(pair.rejected.token_ids)


def _length(pair: Pair) -> int:
    return len(pair.prompt_ids) + max(len(pair.chosen.token_ids), len(pair.rejected.token_ids))
