"""Values of Python as JSON, read strictly and compared without running a method of theirs."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import deque
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

from tracewheel_worlds.code.driver import DEEPEST, MOST_NODES, encode

__all__ = ["decode_claim", "encode", "same"]

HEXADECIMAL = re.compile(r"-?0x[0-9a-f]{1,200000}")
FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}|nan|-?inf")
CONTAINERS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
NUMBERS = (bool, int, float, complex)


class Unhashed:
    """A set or a dictionary of an agent's claim. Values that collide make Python's own quadratic, so this one is never hashed.

    Args:
        kind: The type that it stands for.
        keys: Its parts or keys.
        values: A dictionary's values, in the order of its keys.

    Raises:
        TypeError: a part that no set can hold.
        ValueError: a part occurs twice.
    """

    def __init__(self, kind: type, keys: Collection[Any], values: Collection[Any] = ()) -> None:
        self.kind, self.keys, self.values = kind, list(keys), list(values)
        digests = sorted(_digest(key, strict=False) for key in self.keys)
        if any(one == other for one, other in pairwise(digests)):
            raise ValueError("a key twice")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


def unhashed_set(parts: Any) -> Unhashed:
    """The set of these parts, as `set` makes one."""
    return Unhashed(set, {_digest(part, strict=False): part for part in reversed(list(parts))}.values())


def decode_claim(value: Any, depth: int = 0, *, hashed: bool = True, room: list[int] | None = None) -> Any:
    """The value that the JSON of anyone says; only of Python's own plain types.

    Args:
        value: The JSON.
        depth: How deep it is nested.
        hashed: Whether sets and dictionaries are Python's; those of a policy are to be `Unhashed`.
        room: How many values there may still be.

    Raises:
        ValueError, TypeError: it is not such JSON: an unknown type, a wrong number, a key that cannot be one, too deep or
            too large.
    """
    room = [MOST_NODES] if room is None else room
    room[0] -= 1
    if depth > DEEPEST or room[0] < 0:
        raise ValueError("nested too deep" if depth > DEEPEST else "too large")

    def inside(part: Any) -> Any:
        return decode_claim(part, depth + 1, hashed=hashed, room=room)

    if isinstance(value, list):
        return [inside(part) for part in value]
    if isinstance(value, float):
        raise ValueError("a number with a fraction is written as {'float': ...}")
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("an object has one key, its type")
    ((kind, inner),) = value.items()
    match kind, inner:
        case "int", str() if HEXADECIMAL.fullmatch(inner):
            return int(inner, 16)
        case "float", str() if FLOAT.fullmatch(inner):
            return float(inner) if inner[-1] in "nf" and "x" not in inner else float.fromhex(inner)
        case "complex", [real, imaginary]:
            parts = inside(real), inside(imaginary)
            if not all(type(part) is float for part in parts):
                raise ValueError("a complex number has two floats")
            return complex(*parts)
        case "bytes", str():
            return base64.b64decode(inner, validate=True)
        case "dict", list():
            pairs = [(inside(key), inside(part)) for key, part in inner]
            if not hashed:
                return Unhashed(dict, [key for key, _ in pairs], [part for _, part in pairs])
            found = dict(pairs)
            if len(found) != len(pairs):
                raise ValueError("a key twice")
            return found
        case "set" | "frozenset", list() if not hashed:
            return Unhashed(CONTAINERS[kind], [inside(part) for part in inner])
        case "tuple" | "set" | "frozenset" | "deque", list():
            return CONTAINERS[kind](inside(part) for part in inner)
    raise ValueError(f"no value of type {str(kind)[:40]!r}")


def same(expected: Any, found: Any, *, strict: bool = True, tolerance: float = 0.0) -> bool:
    """Whether a value is the expected one. Both are of plain types; what cannot be compared is another one.

    Args:
        expected: The right value. NaN in it is matched by NaN.
        found: The value to judge.
        strict: Whether types must agree too: True is not 1, and 1 is not 1.0. Otherwise numbers compare as Python does.
        tolerance: How far a float may be from the expected number.
    """
    try:
        return _same(expected, found, strict, tolerance)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return False


def _same(expected: Any, found: Any, strict: bool, tolerance: float) -> bool:
    if type(expected) in NUMBERS and type(found) in NUMBERS:
        if strict and type(expected) is not type(found):
            return False
        if expected == found:
            return True
        if isinstance(expected, complex) or isinstance(found, complex):
            return _near(expected, found, tolerance)
        if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected) and math.isnan(found):
            return True
        return tolerance > 0 and _near(expected, found, tolerance)
    kinds = [value.kind if isinstance(value, Unhashed) else type(value) for value in (expected, found)]
    if kinds[0] is not kinds[1] and (strict or not all(kind in (set, frozenset) for kind in kinds)):
        return False
    if isinstance(expected, list | tuple | deque):
        return len(expected) == len(found) and all(
            _same(one, other, strict, tolerance) for one, other in zip(expected, found, strict=True)
        )
    if kinds[0] in (set, frozenset, dict):
        ones, others = _in_order(expected, strict), _in_order(found, strict)
        return len(ones) == len(others) and all(
            key == other_key and _same(part, other, strict, tolerance)
            for (key, part), (other_key, other) in zip(ones, others, strict=True)
        )
    return bool(expected == found)


def _near(expected: complex, found: complex, tolerance: float) -> bool:
    try:
        return abs(expected - found) <= tolerance
    except OverflowError:
        return False


def _in_order(value: Any, strict: bool) -> list[tuple[bytes, Any]]:
    """The digests of a set's parts or a dictionary's keys, in their order, each with its value; a part's is None."""
    if isinstance(value, dict):
        value = Unhashed(dict, value.keys(), value.values())
    values = value.values if isinstance(value, Unhashed) and value.kind is dict else [None] * len(value)
    return sorted(((_digest(key, strict), part) for key, part in zip(value, values, strict=True)), key=lambda pair: pair[0])


def _digest(value: Any, strict: bool) -> bytes:
    """A digest that two values that can be keys share where they are the same: sorting digests costs the same for any values.

    Raises:
        TypeError: the value cannot be a key.
    """
    kind = value.kind if isinstance(value, Unhashed) else type(value)
    if kind in NUMBERS:
        name, content = kind.__name__ if strict else "number", _number(value).encode()
    elif kind in (tuple, frozenset):
        parts = [_digest(part, strict) for part in value]
        name, content = kind.__name__, b"".join(parts if kind is tuple else sorted(parts))
    elif kind in (str, bytes, type(None)):
        name, content = kind.__name__, value if kind is bytes else str(value).encode(errors="surrogatepass")
    else:
        raise TypeError(f"a {kind.__name__} cannot be a key")
    return hashlib.blake2b(name.encode() + b":" + content, digest_size=20).digest()


def _number(value: Any) -> str:
    """A number's text, which is equal where the values are."""
    if isinstance(value, complex):
        return _number(value.real) + (f" {_number(value.imag)}j" if value.imag else "")
    return value.hex() if isinstance(value, float) and not value.is_integer() else hex(int(value))
