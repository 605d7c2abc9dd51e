"""The usage of episodes behind an endpoint: requests, tokens, money."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracewheel.teacher.attempt import Attempt


def usage_of(attempts: Iterable[Attempt]) -> dict[str, Any]:
    """The sums over all replies of some episodes.

    Returns:
        `replies`, `prompt_tokens`, `cached_tokens` (of these), `completion_tokens`, `replies_without_usage`, and `cost`,
        None when that of any reply is not known.
    """
    usages = [turn["usage"] for attempt in attempts for turn in attempt.turns]
    sums = {name: sum(usage[name] for usage in usages) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    costs = [usage["cost"] for usage in usages]
    return {
        "replies": len(usages),
        **sums,
        "replies_without_usage": sum(not usage["known"] for usage in usages),
        "cost": None if None in costs else sum(costs),
    }
