"""The record that describes a detector of secrets or personal data."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

# For triggers: the characters between a name and its value in escaped bytes, where a tab may be a backslash and a t.
GAP = r"(?:[^A-Za-z0-9]|\\[nrtbf])"

BEFORE = 40  # how many characters before a value are read for `unless`

_MEMORY = 256 << 20  # an upper bound for RE2's tables, which need a few megabytes
# On text that nobody wrote, such as an image in base64 or a million digits, nearly every byte makes a state that the set has
# not seen, and a megabyte takes it 7 to 14 s. Alone, all expressions together take 0.2 s for a megabyte of anything.
_LONG = 1 << 10


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "forms.toml").read_text(encoding="utf-8"))


def read_forms(table: str) -> list[tuple[str, str, str]]:
    """The rows of a table of `forms.toml`, which says what its columns are."""
    return [(first, second, third) for first, second, third in _tables()[table]]


def read_words(table: str) -> list[str]:
    """A list of `forms.toml`."""
    return list(_tables()[table])


def any_of(table: str) -> str:
    """An expression for any word of a list of `forms.toml`."""
    return f"(?:{'|'.join(read_words(table))})"


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


class Triggers:
    """Searches bytes for many expressions in one pass (RE2's sets), linear in the length for any number of expressions.

    Args:
        expressions: In RE2's syntax; each matches bytes.
        also: Expressions that only `fire` searches, because their states and the others' multiply.
    """

    def __init__(self, expressions: Sequence[str], also: Sequence[str] = ()) -> None:
        import re2

        self._options = options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1  # bytes, whatever they encode
        options.max_mem = _MEMORY
        self._distinct = distinct = list(dict.fromkeys(expressions))
        self._members = [[i for i, own in enumerate(expressions) if own == expression] for expression in distinct]
        self._set = re2.Set.SearchSet(options)
        for expression in distinct:
            self._set.Add(expression.encode("latin-1"))
        self._set.Compile()
        every = b"|".join(b"(?:" + expression.encode("latin-1") + b")" for expression in (*distinct, *also))
        self._any = re2.compile(every, options) if every else None

    @cached_property
    def _alone(self) -> list[Any]:
        import re2

        return [re2.compile(expression.encode("latin-1"), self._options) for expression in self._distinct]

    def fire(self, data: bytes) -> bool:
        """Whether any expression is found."""
        return self._any is not None and self._any.search(data) is not None

    def fired(self, data: bytes) -> list[int]:
        """The positions of the expressions that are found, in order."""
        if len(data) > _LONG:
            found = [index for index, expression in enumerate(self._alone) if expression.search(data)]
        else:
            found = (self._set.Match(data) or []) if self._members else []  # None without a match
        return sorted(member for index in found for member in self._members[index])

    def found(self, text: str) -> list[str]:
        """The parts of a text that an expression matches; letters that are not ASCII are lost."""
        if self._any is None:
            return []
        return [match.group().decode("ascii", "replace") for match in self._any.finditer(text.encode("utf-8", "surrogatepass"))]
