"""The optimiser steps of a DPO update: preference pairs and replay text, cut into micro-batches."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracewheel.config import UpdateConfig
from tracewheel.learner.dpo.preferences import Pair
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.replay_text import ReplayText

if TYPE_CHECKING:
    from torch import Tensor

    from tracewheel.learner.batch import Batch


@dataclass
class PairBatch:
    """A micro-batch of P pairs, with the replay text that goes with it.

    `share` is its share of the optimiser step's pairs; `replay_tokens` are those of the whole step. `references`
    [2P] are the reference's log-probabilities of the continuations, the chosen ones first.
    """

    pairs: list[Pair]
    share: float
    replay: list[Batch] = field(default_factory=list)
    replay_tokens: int = 0
    references: Tensor | None = None


def optimiser_steps(settings: UpdateConfig, pairs: list[Pair], text: ReplayText, rng: random.Random) -> list[list[PairBatch]]:
    """The micro-batches of each step. Their number is the same in all steps.

    A micro-batch holds at most `micro_batch_tokens` tokens, or one pair.
    """
    if not pairs:
        return []
    n_steps = min(settings.minibatches, len(pairs))
    in_a_step = -(-len(pairs) // n_steps)
    largest = max(_tokens(pair, settings.layout) for pair in pairs)
    fitting = max(1, settings.micro_batch_tokens // largest)
    n_batches = -(-in_a_step // fitting)
    steps = []
    for _ in range(settings.epochs):
        order = list(range(len(pairs)))
        rng.shuffle(order)
        for number in range(n_steps):
            chosen = sorted((pairs[index] for index in order[number::n_steps]), key=_length)
            # A step with one pair less may leave a micro-batch empty: it gets a pair of share 0.
            cuts = [len(chosen) * part // n_batches for part in range(n_batches + 1)]
            parts = [chosen[start:end] for start, end in itertools.pairwise(cuts)]
            drawn = text.draw(rng)
            tokens = sum(int(batch.action_mask.sum()) for batch in drawn)
            steps.append(
                [
                    PairBatch(part or chosen[:1], len(part) / len(chosen), drawn[place::n_batches], tokens)
                    for place, part in enumerate(parts)
                ]
            )
    return steps


def _tokens(pair: Pair, layout: Layout) -> int:
    """The tokens of a pair's pass: `padded` counts padding, `shared_prefix` the prompt once."""
    if layout == "padded":
        return 2 * _length(pair)
    prompts = 1 if layout == "shared_prefix" else 2
    return prompts * len(pair.prompt_ids) + len(pair.chosen.token_ids) + len(pair.rejected.token_ids)


def _length(pair: Pair) -> int:
    return len(pair.prompt_ids) + max(len(pair.chosen.token_ids), len(pair.rejected.token_ids))
