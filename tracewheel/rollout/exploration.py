"""Exploration in training rollouts, in two ways.

The samples of a group may each have their own temperature, which is recorded with the
trajectory, because log-probabilities are those at that temperature. And a turn may be forced to begin
with the head of a call of a random tool (epsilon-greedy, over tools). Forced tokens are context, like
an observation: mask 0, log-probability 0. What the policy samples after them follows its own
distribution given them, so their log-probabilities and ratios are exact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tracewheel.config import ExplorationConfig, RolloutConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.types import content_hash


def group_temperatures(temperature: float, spread: float, samples: int) -> list[float]:
    """The temperature of each sample of a group: evenly from 1 - `spread` to 1 + `spread` times `temperature`.

    A group of one has the temperature itself.
    """
    if spread == 0.0 or samples == 1:
        return [temperature] * samples
    return [temperature * (1.0 - spread + 2.0 * spread * sample / (samples - 1)) for sample in range(samples)]


def rollout_temperature(rollout: RolloutConfig, iterations: int, iteration: int) -> float:
    """An iteration's temperature: it moves linearly from `temperature` to `exploration.temperature_end`."""
    start, end = rollout.temperature, rollout.exploration.temperature_end
    if end is None:
        return start
    return start + (end - start) * (iteration - 1) / max(1, iterations - 1)


def offered_tools(config: ExplorationConfig, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools that a turn may be forced to begin with; empty when nothing is forced.

    Raises:
        ConfigError: tools are named, and the environment offers none of them.
    """
    if config.epsilon == 0.0:
        return []
    chosen = [tool for tool in tools if not config.tools or tool["function"]["name"] in config.tools]
    if not chosen:
        offered = ", ".join(sorted(tool["function"]["name"] for tool in tools)) or "none"
        raise ConfigError(f"rollout.exploration.tools: none of {', '.join(config.tools)} is offered; the tools are {offered}")
    return chosen


class ForcedCalls:
    """The forced beginnings of one episode's turns.

    Each turn draws two random numbers whether or not it is forced, so one turn's outcome changes no other's.

    Args:
        epsilon: The probability that a turn's beginning is forced.
        heads: The token ids that begin a call, one list a tool.
        seed: The episode's.
    """

    def __init__(self, epsilon: float, heads: Sequence[Sequence[int]], seed: int) -> None:
        self._epsilon = epsilon if heads else 0.0
        self._heads = heads
        self._random = random.Random(content_hash(["forced calls", seed]))

    def next_head(self, room: int) -> list[int]:
        """The ids that the next turn begins with: empty, or a head shorter than `room`."""
        if self._epsilon == 0.0:
            return []
        chance, choice = self._random.random(), self._random.random()
        head = list(self._heads[int(choice * len(self._heads))])
        return head if chance < self._epsilon and len(head) < room else []
