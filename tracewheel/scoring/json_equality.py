"""Equality of JSON values with strict types, and the places in which two of them differ."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import Any

from tracewheel.core.types import canonical_json

GONE = object()
# Steps of a comparison that pairs up unordered lists within a tolerance, which can take many; after them values are not equal.
MOST_STEPS = 1_000_000


def same_json(
    one: Any, other: Any, tolerance: float | None = None, unordered: bool = False, ignored: Collection[str] = ()
) -> bool:
    """Whether two JSON values are equal.

    Types are strict: true is not 1, 1 is not 1.0, "1" is not 1. The order of an object's keys never counts.

    Args:
        one, other: The values.
        tolerance: Numbers may differ by this much, whether whole or not; None compares them exactly.
        unordered: Whether lists are compared as multisets.
        ignored: Keys of objects, at any depth, that do not count.
    """
    if unordered and _digest(one, ignored) == _digest(other, ignored):
        return True
    if unordered and tolerance is None:
        return False
    try:
        return _same(one, other, tolerance, unordered, ignored, [MOST_STEPS])
    except _TooManyStepsError:
        return False


class _TooManyStepsError(Exception):
    """A comparison took all its steps."""


def _same(one: Any, other: Any, tolerance: float | None, unordered: bool, ignored: Collection[str], room: list[int]) -> bool:
    def same(left: Any, right: Any) -> bool:
        return _same(left, right, tolerance, unordered, ignored, room)

    room[0] -= unordered
    if room[0] < 0:
        raise _TooManyStepsError
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = ({key: value for key, value in part.items() if key not in ignored} for part in (one, other))
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        if not unordered:
            return all(map(same, one, other))
        if all(map(_is_number, [*one, *other])):
            return all(map(same, sorted(one), sorted(other)))
        return _pairs_up([[number for number, right in enumerate(other) if same(left, right)] for left in one])
    if tolerance is not None and _is_number(one) and _is_number(other):
        try:
            return bool(abs(one - other) <= tolerance)
        except OverflowError:
            return False
    return type(one) is type(other) and bool(one == other)


def _digest(value: Any, ignored: Collection[str]) -> bytes:
    """A digest that two JSON values share where they are the same up to the order of their lists."""
    if isinstance(value, dict):
        parts = [_digest(key, ()) + _digest(part, ignored) for key, part in value.items() if key not in ignored]
    elif isinstance(value, list):
        parts = [_digest(part, ignored) for part in value]
    else:
        parts = [canonical_json(value + 0.0 if isinstance(value, float) else value).encode(errors="surrogatepass")]
    return hashlib.blake2b(type(value).__name__.encode() + b":" + b"".join(sorted(parts)), digest_size=20).digest()


def changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The leaves in which two JSON values differ: JSON Pointer (RFC 6901), value before and after, `GONE` where there is none.

    A value that was added or taken away counts with each of its leaves; an empty object or list is one.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _below(before.get(key, GONE), after.get(key, GONE), f"{path}/{escaped(key)}")
    elif isinstance(before, list) and isinstance(after, list):
        for place in range(max(len(before), len(after))):
            first, second = (values[place] if place < len(values) else GONE for values in (before, after))
            yield from _below(first, second, f"{path}/{place}")
    elif not same_json(before, after):
        yield path, before, after


def at_pointer(value: Any, pointer: str, absent: Any = GONE) -> Any:
    """The value at a JSON Pointer, `absent` where there is none.

    Raises:
        ValueError: it is no pointer.
    """
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"'{pointer}' is no JSON Pointer: it begins with a slash, as in /orders/0/status")
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return absent
    return value


def escaped(key: str) -> str:
    """A key as a part of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _below(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if before is GONE and isinstance(after, dict | list) and after:
        yield from changes(type(after)(), after, path)
    elif after is GONE and isinstance(before, dict | list) and before:
        yield from changes(before, type(before)(), path)
    else:
        yield from changes(before, after, path)


def _pairs_up(fits: list[list[int]]) -> bool:
    """Whether each left item gets a right item of its own: a matching, since a tolerance is not transitive."""
    if not all(fits):
        return False
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    ends = np.cumsum([0, *map(len, fits)])
    places = np.concatenate(fits)
    graph = csr_array((np.ones(len(places)), places, ends), shape=(len(fits), len(fits)))
    return bool((maximum_bipartite_matching(graph, perm_type="column") >= 0).all())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
