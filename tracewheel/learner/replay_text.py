"""Replay text: generic examples mixed into every step, so that the policy keeps skills the tasks do not exercise."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.config import UpdateConfig
from tracewheel.policy.limits import read_token_ids

if TYPE_CHECKING:
    from tracewheel.learner.batch import Batch


REPLAY_WEIGHT = 0.3  # of the text's loss, beside that of the trajectories


class ReplayText:
    """Tokenised examples with a loss mask; each step draws a few.

    Raises:
        DataError: the file cannot be read.
        ConfigError: its ids are those of another tokenizer than the base's.
    """

    def __init__(self, config: UpdateConfig, base: str) -> None:
        self._rows = config.replay_rows if config.replay_path else 0
        self._cap = config.micro_batch_tokens
        if self._rows:
            self._table = read_token_ids(Path(str(config.replay_path)), base, "learner.replay_path")

    def draw(self, rng: random.Random) -> list[Batch]:
        """The batches of one step; empty when the profile mixes in no text."""
        from tracewheel.learner.batch import text_batches

        if not self._rows:
            return []
        chosen = sorted(rng.sample(range(len(self._table)), min(self._rows, len(self._table))))
        return text_batches(self._table.iloc[chosen], self._cap)
