"""What differs between nested values: settings of runs, lineages, final states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ABSENT = "(absent)"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping with dotted names; lists stay whole, and an empty mapping is a value."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def setting_differences(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The settings that are not the same in all: `name` (dotted) and the `values`, `ABSENT` where one has none."""
    tables = [flat(values) for values in settings]
    names = list(dict.fromkeys(name for table in tables for name in table))
    rows = [{"name": name, "values": [table.get(name, ABSENT) for table in tables]} for name in names]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"][1:])]


def value_differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places in two JSON values that differ, in order: path, and both values (`ABSENT` where there is none)."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            yield from value_differences(
                one.get(name, ABSENT), other.get(name, ABSENT), f"{path}.{name}" if path else str(name)
            )
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            first, second = (values[place] if place < len(values) else ABSENT for values in (one, other))
            yield from value_differences(first, second, f"{path}[{place}]")
    elif one != other and not (one != one and other != other):  # NaN is the same as NaN
        yield path, one, other
