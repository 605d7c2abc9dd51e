"""Equality of JSON values with strict types, and the places in which two of them differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

GONE = object()


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
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = ({key: value for key, value in part.items() if key not in ignored} for part in (one, other))
        return first.keys() == second.keys() and all(
            same_json(first[key], second[key], tolerance, unordered, ignored) for key in first
        )
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        if not unordered:
            return all(same_json(*pair, tolerance, unordered, ignored) for pair in zip(one, other, strict=True))
        return _pairs_up(
            [[number for number, right in enumerate(other) if same_json(left, right, tolerance, True, ignored)] for left in one]
        )
    if tolerance is not None and _is_number(one) and _is_number(other):
        return bool(abs(one - other) <= tolerance)
    return type(one) is type(other) and bool(one == other)


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


def at_pointer(value: Any, pointer: str) -> Any:
    """The value at a JSON Pointer, `GONE` where there is none.

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
            return GONE
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
    """Whether each left item gets a right item of its own: augmenting paths (Kuhn), since a tolerance is not transitive."""
    taken: dict[int, int] = {}

    def place(left: int, seen: set[int]) -> bool:
        for right in fits[left]:
            if right not in seen:
                seen.add(right)
                if right not in taken or place(taken[right], seen):
                    taken[right] = left
                    return True
        return False

    return all(place(left, set()) for left in range(len(fits)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
