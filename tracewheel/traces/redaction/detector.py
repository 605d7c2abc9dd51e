"""What a detector of secrets or personal data is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

# For triggers: what may lie between a name and its value in bytes as written, where a tab may be a backslash and a t.
GAP = r"(?:[^A-Za-z0-9]|\\[nrtbf])"


def as_found(value: str) -> str | None:
    """Any value, as it stands."""
    return value or None


@dataclass(frozen=True)
class Detector:
    """Finds one kind of value in text as it reads (`Unescaped`).

    Attributes:
        kind: What is found.
        trigger: A looser expression (RE2, on bytes): it fires on a text as written wherever `pattern` finds
            something in the text as it reads. Only then the pattern is tried.
        pattern: Finds candidates.
        group: The group of `pattern` that is the value.
        identify: What a candidate stands for, however it is written, or None where it is none after all. Equal
            identities get equal pseudonyms.
        nested: The pattern tells quotes apart by their depth.
        doubt: Where values overlap, that of the detector with the least doubt counts: 0 for a form that only this
            kind has, 1 for what stands in a place for secrets, 2 for what is called one, 3 for personal data.
    """

    kind: str
    trigger: str
    pattern: re.Pattern[str]
    group: int = 0
    identify: Callable[[str], str | None] = as_found
    nested: bool = False
    doubt: int = 0


def when(fits: Callable[[str], bool]) -> Callable[[str], str | None]:
    """An `identify` that keeps what fits as it stands."""
    return lambda value: value if value and fits(value) else None


def mixed(value: str) -> bool:
    """Whether a value has letters and digits, as keys have and words have not."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
