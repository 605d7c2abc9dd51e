"""What the methods of a user's verifier are to return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from tracewheel.scoring.verifiers.episode import Verdict

PAIR = "a pair (total, parts): a number from 0 to 1, and a dictionary with a number for each check"


def pair(value: Any) -> str:
    if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[0], Real):
        return PAIR
    parts = value[1]
    return "" if isinstance(parts, Mapping) and all(isinstance(part, Real) for part in parts.values()) else PAIR


def verdict(value: Any) -> str:
    return "" if isinstance(value, Verdict) else "a tracewheel.Verdict"


def verdicts(value: Any) -> str:
    right = isinstance(value, Sequence) and all(isinstance(one, Verdict | Exception) for one in value)
    return "" if right else "a Verdict or an exception for each episode"


def number(value: Any) -> str:
    return "" if isinstance(value, Real) else "a number from 0 to 1"


CHECKS = {"verify": pair, "verify_episode": verdict, "verify_group": verdicts, "progress": number}
