"""The branches of an episode as a picture: a line for each, its turns as points in the order in which they were sampled."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tracewheel.dashboard.branches import Branch
from tracewheel.dashboard.text import seen

STEP, LINE, LEFT, TOP = 30, 34, 26, 20
MOST = 60  # branches, and turns, that are drawn
NAME = 270
# By the class of the style sheet: a page may set no style of its own.
WIDTHS = {"short": 480, "long": 960, "longest": LEFT + STEP * (MOST + 1) + NAME}


def tree_picture(branches: Sequence[Branch]) -> Markup:
    """Draw the branches.

    A line leaves its parent where the last turn before its first one was said; a branch that shares nothing begins by itself.
    A turn without credit is a ring.
    """
    shown = [branch for branch in branches[:MOST] if branch.turns]
    last = min(MOST, max((at for branch in shown for at in branch.turns), default=0))
    lines = {branch.number: line for line, branch in enumerate(shown)}
    label = LEFT + STEP * (last + 1)
    size, width = next((name, most) for name, most in WIDTHS.items() if most >= label + NAME)
    height = TOP + LINE * len(shown)
    parts = [_branch(branch, branches, lines, label) for branch in shown]
    says = "; ".join(f"branch {each.number + 1}, turns {_numbers(each)}: {seen(each.reason) or 'the first'}" for each in shown)
    picture = Markup('<svg class="tree {}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return picture.format(size, width, height, f"The tree of branches. {says}", Markup("").join(parts))


def _branch(branch: Branch, branches: Sequence[Branch], lines: dict[int, int], label: int) -> Markup:
    y = TOP + LINE * lines[branch.number]
    turns = [(at, credit) for at, credit in zip(branch.turns, branch.credits, strict=True) if at <= MOST]
    parts = []
    if turns:
        first, last = turns[0][0], turns[-1][0]
        parts.append(Markup('<path d="M{} {}H{}"/>').format(_x(first), y, _x(last)))
        if branch.parent in lines:
            parts.append(_way(branch, branches[branch.parent], TOP + LINE * lines[branch.parent], first, y))
    for at, credit in turns:
        kind = "nobodys" if credit == "" else "own"
        parts.append(Markup('<circle class="{}" cx="{}" cy="{}" r="7"/>').format(kind, _x(at), y))
        parts.append(Markup('<text class="at" x="{}" y="{}">{}</text>').format(_x(at), y + 4, at + 1))
    name = f"{branch.number + 1}: {branch.reason.replace('_', ' ') or 'first'}{f' · {branch.agent}' if branch.agent else ''}"
    parts.append(Markup('<text class="name" x="{}" y="{}">{}</text>').format(label, y + 4, seen(name[:40])))
    return Markup('<g class="b{}">{}</g>').format(branch.number % 4, Markup("").join(parts))


def _way(branch: Branch, parent: Branch, top: int, first: int, y: int) -> Markup:
    """From the parent's line to the branch's first turn."""
    before = [at for at in parent.turns[: branch.shared_turns] if at < first]
    x = _x(before[-1]) if before else _x(parent.turns[0]) - STEP // 2
    return Markup('<path class="way" d="M{} {}V{}Q{} {} {} {}H{}"/>').format(x, top, y - 10, x, y, x + 10, y, _x(first))


def _x(turn: int) -> int:
    return LEFT + STEP * turn


def _numbers(branch: Branch) -> str:
    return ", ".join(str(at + 1) for at in branch.turns)
