"""Two trajectories side by side, aligned up to the first step that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tracewheel.dashboard.transcript import Step

SAME, DIFFERS, AFTER = "same", "differs", "after"


@dataclass(frozen=True)
class Row:
    """A step of each; None where one has ended. `kind` is `same`, `differs` (the first that does) or `after`."""

    left: Step | None
    right: Step | None
    kind: str


def aligned(left: Sequence[Step], right: Sequence[Step]) -> list[Row]:
    """The steps in pairs, turn beside turn."""
    rows: list[Row] = []
    parted = False
    for one, other in zip_longest(left, right):
        if parted:
            rows.append(Row(one, other, AFTER))
        elif one is not None and other is not None and _said(one) == _said(other):
            rows.append(Row(one, other, SAME))
        else:
            rows.append(Row(one, other, DIFFERS))
            parted = True
    return rows


def how_it_differs(rows: Sequence[Row]) -> str:
    """What differs at the first step that does, in words; "" where nothing does."""
    row = next((row for row in rows if row.kind == DIFFERS), None)
    if row is None:
        return ""
    if row.left is None or row.right is None:
        return f"The {'right' if row.left is None else 'left'} one goes on where the other has ended."
    if row.left.role != row.right.role:
        return f"A message of {row.left.role} on the left, of {row.right.role} on the right."
    ours, theirs = [call.name for call in row.left.calls], [call.name for call in row.right.calls]
    if ours != theirs:
        return f"The left one calls {', '.join(ours) or 'no tool'}, the right one {', '.join(theirs) or 'no tool'}."
    if [call.arguments for call in row.left.calls] != [call.arguments for call in row.right.calls]:
        return f"Both call {', '.join(ours)}, with different arguments."
    if [call.reply for call in row.left.calls] != [call.reply for call in row.right.calls]:
        return f"Both make the same call of {', '.join(ours)}, and get different replies."
    return "They say different things."


def _said(step: Step) -> tuple[object, ...]:
    return step.role, step.text, step.thinking, tuple((call.name, call.arguments, call.reply) for call in step.calls)
