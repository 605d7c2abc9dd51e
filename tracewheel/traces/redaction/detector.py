"""The record that describes a detector of secrets or personal data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# For triggers: the characters between a name and its value in escaped bytes, where a tab may be a backslash and a t.
GAP = r"(?:[^A-Za-z0-9]|\\[nrtbf])"

BEFORE = 40  # how many characters before a value are read for `unless`


def as_found(value: str) -> str | None:
    """Accept any value, unchanged."""
    return value or None


@dataclass(frozen=True)
class Detector:
    """Finds one kind of value in unescaped text (`Unescaped`).

    Attributes:
        kind: The kind of value.
        trigger: A looser expression (RE2, on bytes). It matches the escaped text wherever `pattern` matches the unescaped
            text; `pattern` is tried only then.
        pattern: Finds candidates.
        group: The group of `pattern` that is the value.
        identify: The canonical form of a candidate, or None if it is a false match. Equal identities get equal
            pseudonyms.
        nested: The pattern tells quotes apart by their depth.
        unless: Words before a value that say that it is something else (`part no.`); they end where the value starts.
        doubt: Of overlapping values, the one with the least doubt counts: 0 for a form that only this kind has, 1 for a
            value in a place for secrets, 2 for a value named as a secret, 3 for personal data.
    """

    kind: str
    trigger: str
    pattern: re.Pattern[str]
    group: int = 0
    identify: Callable[[str], str | None] = as_found
    nested: bool = False
    doubt: int = 0
    unless: re.Pattern[str] | None = None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """The candidates in an unescaped text that the words before them do not rule out."""
        for match in self.pattern.finditer(text):
            start = match.start(self.group)
            if self.unless is None or not self.unless.search(text, max(0, start - BEFORE), start):
                yield match


def when(fits: Callable[[str], bool]) -> Callable[[str], str | None]:
    """An `identify` that accepts values for which `fits` is true, unchanged."""
    return lambda value: value if value and fits(value) else None


def mixed(value: str) -> bool:
    """Whether a value has both letters and digits, as keys do and words do not."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
