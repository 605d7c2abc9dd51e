"""The road of a run as a picture: stations in rows that go to and fro, joined by arrows."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tracewheel.dashboard.road import Station

WIDE, HIGH, GAP, DROP = 222, 110, 34, 34
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
