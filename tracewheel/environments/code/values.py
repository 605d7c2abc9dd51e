"""Values of Python as JSON, read strictly and compared without running a method of theirs."""

from __future__ import annotations

import base64
import math
import re
from collections import deque
from typing import Any

from tracewheel.environments.code.driver import DEEPEST, encode

__all__ = ["decode_claim", "encode", "same"]

HEXADECIMAL = re.compile(r"-?0x[0-9a-f]{1,200000}")
FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}|nan|-?inf")
CONTAINERS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
NUMBERS = (bool, int, float, complex)


def decode_claim(value: Any, depth: int = 0) -> Any:
    """The value that the JSON of anyone says; only of Python's own plain types.

    Raises:
        ValueError, TypeError: it is not such JSON: an unknown type, a wrong number, a key that cannot be one, too deep.
    """
    if depth > DEEPEST:
        raise ValueError("nested too deep")
    if isinstance(value, list):
        return [decode_claim(part, depth + 1) for part in value]
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
            parts = decode_claim(real, depth + 1), decode_claim(imaginary, depth + 1)
            if not all(type(part) is float for part in parts):
                raise ValueError("a complex number has two floats")
            return complex(*parts)
        case "bytes", str():
            return base64.b64decode(inner, validate=True)
        case "dict", list():
            pairs = [(decode_claim(key, depth + 1), decode_claim(part, depth + 1)) for key, part in inner]
            found = dict(pairs)
            if len(found) != len(pairs):
                raise ValueError("a key twice")
            return found
        case "tuple" | "set" | "frozenset" | "deque", list():
            return CONTAINERS[kind](decode_claim(part, depth + 1) for part in inner)
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
    if type(expected) is not type(found):
        return not strict and isinstance(expected, set | frozenset) and isinstance(found, set | frozenset) and expected == found
    if isinstance(expected, list | tuple | deque):
        return len(expected) == len(found) and all(
            _same(one, other, strict, tolerance) for one, other in zip(expected, found, strict=True)
        )
    if isinstance(expected, set | frozenset):
        actual = {part: part for part in found}
        return len(expected) == len(found) and all(
            part in actual and _same(part, actual[part], strict, 0.0) for part in expected
        )
    if isinstance(expected, dict):
        keys = {key: key for key in found}
        return len(expected) == len(found) and all(
            key in keys and _same(key, keys[key], strict, 0.0) and _same(part, found[key], strict, tolerance)
            for key, part in expected.items()
        )
    return bool(expected == found)


def _near(expected: complex, found: complex, tolerance: float) -> bool:
    try:
        return abs(expected - found) <= tolerance
    except OverflowError:
        return False
