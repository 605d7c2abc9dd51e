"""Searches for many expressions at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

_MEMORY = 256 << 20  # an upper bound for RE2's tables, which need a few megabytes
# On text that nobody wrote, such as an image in base64 or a million digits, nearly every byte makes a state that the set has
# not seen, and a megabyte takes it 7 to 14 s. Alone, all expressions together take 0.2 s for a megabyte of anything.
_LONG = 1 << 10


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
