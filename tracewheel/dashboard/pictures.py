"""Pictures as SVG: the road of a run, the branches of an episode, and what its agent saw."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tracewheel.core.errors import DataError
from tracewheel.core.foreign_folder import read_file
from tracewheel.dashboard.branches import Branch
from tracewheel.dashboard.road import Station
from tracewheel.dashboard.text import seen
from tracewheel.dashboard.transcript import listed

WIDE, HIGH, GAP, DROP = 222, 110, 34, 34
MOST_FRAMES, MOST_BYTES = 60, 1 << 20
MARKS = {"done": "✓", "now": "…", "halted": "✕", "ahead": "○"}
WORDS = {"done": "done", "now": "going on", "halted": "ended here", "ahead": "not yet"}


def road_picture(stations: Sequence[Station], base: str, columns: int) -> Markup:
    """Draw the stations.

    Args:
        stations: In order.
        base: The address of the run; a station's page is below it.
        columns: Stations in a row; every other row runs backwards.
    """
    rows = -(-len(stations) // columns)
    width, height = columns * WIDE + (columns - 1) * GAP + 4, rows * HIGH + (rows - 1) * DROP + 4
    parts = [Markup("")]
    for place, station in enumerate(stations):
        x, y = _corner(place, columns)
        if place + 1 < len(stations):
            parts.append(_arrow((x, y), _corner(place + 1, columns), station.stands))
        parts.append(_station(station, x, y, base))
    return Markup('<svg class="road c{}" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        columns, width, height, "The road of the run", Markup("").join(parts)
    )


def _corner(place: int, columns: int) -> tuple[int, int]:
    row, column = divmod(place, columns)
    column = columns - 1 - column if row % 2 else column
    return 2 + column * (WIDE + GAP), 2 + row * (HIGH + DROP)


def _station(station: Station, x: int, y: int, base: str) -> Markup:
    lines = [
        Markup('<text class="name" x="{}" y="{}">{} <tspan class="mark">{}</tspan></text>').format(
            x + 14, y + 22, station.name, MARKS[station.stands]
        ),
        Markup('<text class="figure" x="{}" y="{}">{}</text>').format(x + 14, y + 46, station.figure or "–"),
    ]
    for line, note in enumerate(station.notes[:3]):
        lines.append(Markup('<text class="note" x="{}" y="{}">{}</text>').format(x + 14, y + 65 + 17 * line, note))
    box = Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="8"/>').format(x, y, WIDE, HIGH)
    says = f"{station.name}, {WORDS[station.stands]}: {station.figure or 'nothing known'}. {'; '.join(station.notes)}"
    drawn = Markup('<g class="station {}" aria-label="{}">{}{}</g>').format(station.stands, says, box, Markup("").join(lines))
    if not station.page:
        return drawn
    target = station.page if station.page.startswith("#") else f"{base}{station.page}"
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(target, says, drawn)


def _arrow(start: tuple[int, int], end: tuple[int, int], stands: str) -> Markup:
    if start[1] == end[1]:
        way = 1 if end[0] > start[0] else -1
        x = start[0] + (WIDE if way > 0 else 0)
        y = start[1] + HIGH // 2
        tip = x + way * (GAP - 4)
        path = f"M{x + way * 4} {y}H{tip}M{tip - way * 7} {y - 5}L{tip} {y}L{tip - way * 7} {y + 5}"
    else:
        x, y = start[0] + WIDE // 2, start[1] + HIGH
        tip = end[1] - 4
        path = f"M{x} {y + 4}V{tip}M{x - 5} {tip - 7}L{x} {tip}L{x + 5} {tip - 7}"
    return Markup('<path class="way {}" d="{}"/>').format(stands, path)


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


def film(state: Any, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pictures that the final state of an episode lists under `pictures`, as data that a page holds; empty without.

    Each has its digest (`picture`), its `size`, and `at`, where the agent acted on what is to be seen. The files lie in the
    folder of the environment's argument `screenshots`; what is not there is left out.
    """
    folder = str(((settings.get("environment") or {}).get("args") or {}).get("screenshots") or "")
    pictures = listed(state.get("pictures")) if isinstance(state, Mapping) and folder else []
    return [*filter(None, (_frame(Path(folder), each) for each in pictures[:MOST_FRAMES]))]


def _frame(folder: Path, said: Any) -> dict[str, Any] | None:
    try:
        width, height = map(int, said["size"])
        x, y = map(int, said.get("at") or (0, 0))
        content = read_file(folder / f"{re.sub('[^0-9a-f]', '', str(said['picture']))}.webp", MOST_BYTES)
    except (DataError, KeyError, TypeError, ValueError):
        return None
    return {"data": base64.b64encode(content).decode(), "size": (width, height), "at": (x, y) if said.get("at") else None}
