"""Which of a trace's scores is its outcome: tracers keep many, by name."""

from __future__ import annotations

from typing import Any

OUTCOME_NAMES = ("reward", "total", "success", "score", "correctness")


def outcome_of(scores: list[tuple[Any, Any]]) -> float | None:
    """The outcome among pairs of name and value: the first of `OUTCOME_NAMES` that is a number, or yes or no; else None."""
    numbers = {
        name.lower(): float(value) for name, value in scores if isinstance(name, str) and isinstance(value, int | float | bool)
    }
    return next((numbers[name] for name in OUTCOME_NAMES if name in numbers), None)
