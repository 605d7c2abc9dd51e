"""Turnover of full sets: a share of their places goes to tasks that are still being asked.

A set of S tasks keeps S - R places for the tasks of its side that were there first. The other R = share x S hold a window:
at first the next tasks in that order, then, in steps of S / 10 tasks, those that were seen most recently. Between two steps
the window stays, so that nights with little that is new keep their held-out tasks and with them earlier evaluations.

All of it follows from the traces and the order of tasks in the record, however many curations have read them. A task that
leaves a set keeps its side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

STEP = 0.1  # of a set's size


def filled(candidates: Sequence[str], size: int, share: float, seen: Iterable[str]) -> list[str]:
    """The tasks of a set.

    Args:
        candidates: The tasks that the set may hold, those first that were there first.
        size: How many it holds.
        share: How much of it turns over.
        seen: The task of each trace since the first draw, in the order of time.
    """
    places = min(round(share * size), size - 1)  # one place at least stays
    if len(candidates) <= size or places <= 0:
        return list(candidates[:size])
    first, others = candidates[: size - places], candidates[size - places :]
    window = dict.fromkeys(others[:places])  # the task that was seen longest ago comes first
    waiting: dict[str, None] = {}
    known, step = set(others), max(1, min(places, round(STEP * size)))
    for task in seen:
        if task not in known:
            continue
        group = window if task in window else waiting
        group.pop(task, None)
        group[task] = None
        if len(waiting) == step:
            window |= waiting
            window = dict.fromkeys(list(window)[-places:])
            waiting.clear()
    return [*first, *window]
