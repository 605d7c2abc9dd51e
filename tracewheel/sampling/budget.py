"""The budget of training episodes."""

from __future__ import annotations


def has_room(budget: int | None, used: int, wanted: int) -> bool:
    """Whether another iteration of `wanted` episodes fits in the rest of the budget; None is no limit."""
    return budget is None or used + wanted <= budget
