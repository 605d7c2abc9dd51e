"""Episodes of the scale simulation: turns, tokens and tool seconds drawn from distributions, or replayed."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Spread:
    """A log-normal distribution by its mean and the deviation of its logarithm, cut to a range; `sigma` 0: the mean."""

    mean: float
    sigma: float = 0.0
    least: float = 0.0
    most: float = math.inf

    def draw(self, rng: random.Random) -> float:
        if self.mean <= 0 or self.sigma == 0:
            return min(max(self.mean, self.least), self.most)
        value = rng.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
        return min(max(value, self.least), self.most)


class Turn(NamedTuple):
    """Reads `new` tokens, samples `said`, then waits for a tool, which takes `cpu_s` of a core."""

    new: int
    said: int
    tool_s: float
    cpu_s: float


Episode = list[Turn]


@dataclass(frozen=True)
class Workload:
    """The behaviour of an agent. The means are those of multi-turn tool use; replace them by your own.

    An iteration has `tasks` groups of `group` episodes. `recorded` episodes are drawn from instead of the distributions.
    """

    tasks: int = 128
    group: int = 8
    turns: Spread = Spread(8, 0.5, 1, 32)
    prompt: float = 1500
    said: Spread = Spread(200, 0.7, 8, 2048)
    observation: Spread = Spread(300, 0.8, 8, 4096)
    tool_s: Spread = Spread(1.0, 1.0, 0.01, 60)
    cpu_s: float = 0.05
    recorded: list[Episode] = field(default_factory=list)

    @property
    def episodes(self) -> int:
        return self.tasks * self.group

    def draw(self, seed: int) -> Iterator[Episode]:
        """Episodes without end, the same ones for the same seed."""
        rng = random.Random(seed)
        while True:
            yield rng.choice(self.recorded) if self.recorded else self._episode(rng)

    def _episode(self, rng: random.Random) -> Episode:
        turns = round(self.turns.draw(rng))
        return [
            Turn(
                round(self.observation.draw(rng) if number else self.prompt),
                max(1, round(self.said.draw(rng))),
                self.tool_s.draw(rng),
                self.cpu_s,
            )
            for number in range(max(1, turns))
        ]

    @functools.cached_property
    def mean_tokens(self) -> tuple[float, float, float]:
        """Means over episodes: sampled tokens, all tokens, and all tokens weighted by length."""
        draws = 2000
        episodes = [episode for episode, _ in zip(self.draw(1), range(draws), strict=False)]
        said = sum(turn.said for episode in episodes for turn in episode) / draws
        whole = [sum(turn.new + turn.said for turn in episode) for episode in episodes]
        return said, sum(whole) / draws, sum(length**2 for length in whole) / sum(whole)


def lengths(episode: Episode) -> tuple[int, int]:
    """Sampled tokens and all tokens of an episode."""
    said = sum(turn.said for turn in episode)
    return said, said + sum(turn.new for turn in episode)
