"""Changed solutions: calls dropped, doubled, swapped, added, or with other arguments."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracewheel_graders.audit.play import Call

Changed = tuple[str, list[Call]]


def changed_solutions(
    solution: Sequence[Call], others: Sequence[Sequence[Call]], rng: random.Random, most: int
) -> Iterator[Changed]:
    """Changed solutions by what was done to them, up to `most` of each.

    Some of them still solve the task: who plays them compares how they end.

    Args:
        solution: Calls that solve the task.
        others: Solutions of other tasks, for calls to add and values to put in.
        rng: Chooses among them.
        most: How many of each kind.
    """
    places, foreign = range(len(solution)), [call for other in others for call in other]

    def some(items: Sequence[Any]) -> list[Any]:
        return rng.sample(items, min(most, len(items)))

    for place in some(places):
        yield "dropped", [*solution[:place], *solution[place + 1 :]]
    for place in some(places):
        yield "doubled", [*solution[: place + 1], *solution[place:]]
    for place in some(places[1:]):
        yield "swapped", [*solution[: place - 1], solution[place], solution[place - 1], *solution[place + 1 :]]
    for place in some(places):
        yield "truncated", list(solution[:place])
    for call in some(foreign):
        place = rng.randrange(max(1, len(solution)))
        yield "added", [*solution[:place], call, *solution[place:]]
    slots = [(place, name) for place in places for name in sorted(solution[place][1])]
    for place, name in some(slots):
        value = solution[place][1][name]
        for other in some(_other_values(solution[place], name, foreign))[:1]:
            yield "other_value", with_value(solution, place, name, other)
        for other in some(_wrong_types(value))[:1]:
            yield "other_type", with_value(solution, place, name, other)


def with_value(solution: Sequence[Call], place: int, name: str, value: Any) -> list[Call]:
    """A solution with another value of one argument."""
    tool, args = solution[place]
    return [*solution[:place], (tool, {**args, name: value}), *solution[place + 1 :]]


def _other_values(call: Call, name: str, foreign: Sequence[Call]) -> list[Any]:
    """Values of the argument in other solutions, and the value itself a little off."""
    value = call[1][name]
    near = [value + 1, value - 1, -value] if _is_number(value) else [f"{value}x", value[:-1]] if isinstance(value, str) else []
    found = [args[name] for tool, args in foreign if tool == call[0] and name in args]
    return [other for other in (*found, *near) if other != value]


def _wrong_types(value: Any) -> list[Any]:
    """The value as another type of JSON; not one that is equal to it, as 1 and 1.0 are."""
    if isinstance(value, bool):
        return [str(value).lower(), [value], None]
    if _is_number(value):
        return [str(value), [value], *([bool(value)] if value in (0, 1) else []), None]
    if isinstance(value, Mapping):
        return [[value], str(value), None]
    return [[value], {"value": value}, None, 1, True]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
