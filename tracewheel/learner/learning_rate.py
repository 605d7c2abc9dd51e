"""The learning rate over the iterations of a run."""

from __future__ import annotations

from tracewheel.config import UpdateSections


def learning_rate(config: UpdateSections, iteration: int) -> float:
    """The learning rate of an iteration, counted from 1; it stays above 0 in the last one.

    Raises:
        ConfigError: it is `auto`, and no trials have found it.
    """
    iterations = config.schedule_iterations
    left = 1.0 - min(iteration - 1, iterations - 1) / iterations if iterations else 1.0
    return config.learner.rate() * left
