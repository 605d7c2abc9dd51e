"""How commands look on a terminal: a title, a few figures, the one thing to look at, and the next command to type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.console.encoding import clean

if TYPE_CHECKING:  # rich is for who prints: the command line is parsed without
    from rich.console import Console
    from rich.table import Table

STYLES: dict[str, str] = {"good": "green", "warning": "yellow", "bad": "bold red"}
WIDTH = 120  # of what is no terminal
LONGEST = 400


@dataclass(frozen=True)
class Grid:
    """A table: the first column holds names, the others figures, or else texts."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: bool = True


@dataclass(frozen=True)
class Block:
    """A heading and lines below it."""

    heading: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Card:
    """What a command says.

    Attributes:
        title: What was done, in one line.
        rows: Labels and figures.
        parts: Tables and blocks of lines.
        look_at: The one thing to look at.
        tone: "good", "warning" or "bad".
        next: Commands to type.
    """

    title: str
    rows: Sequence[tuple[str, str]] = ()
    parts: Sequence[Grid | Block] = ()
    look_at: str = ""
    tone: str = "good"
    next: Sequence[str] = ()


def result_console() -> Console:
    """Where results are printed: as wide as the terminal; without one, wide enough for the tables."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def show_card(card: Card, console: Console | None = None) -> None:
    """Print a card to standard output, or to another console."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = console or result_console()
    if card.title:
        console.print(Text(clean(card.title), style="bold"))
    if card.rows:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, value in card.rows:
            grid.add_row(Text(label), Text(clean(value)))
        console.print(Padding(grid, (0, 0, 0, 2), expand=False))
    for part in card.parts:
        if isinstance(part, Grid):
            console.print(_table(part))
        else:
            if part.heading:
                console.print(Text(clean(part.heading), style="bold"))
            for line in part.lines:
                console.print(Padding(Text(clean(line), overflow="fold"), (0, 0, 0, 2), expand=False))
    say(console, card.look_at, card.tone, card.next)


def say(console: Console, look_at: str = "", tone: str = "good", next: Sequence[str] = ()) -> None:
    """Print the one thing to look at, and the next commands, which are never broken into lines."""
    from rich.text import Text

    if look_at:
        mark = {"good": "", "warning": "look at: ", "bad": "LOOK AT: "}[tone]
        console.print(Text(f"{mark}{clean(look_at)}", style=STYLES[tone]))
    for command in next:
        console.print(Text.assemble(("next: ", "dim"), clean(command)), soft_wrap=True)


def _table(grid: Grid) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for place, heading in enumerate(grid.headings):
        table.add_column(heading, justify="right" if place and grid.figures else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table


def one_line(text: str, longest: int = LONGEST) -> str:
    """A text in one line, cut at its end."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def number(value: Any) -> str:
    """A figure as text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def counted(counts: Mapping[str, Any]) -> str:
    """Counts by name, the largest first; "none" without any."""
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {number(count)}" for name, count in items) or "none"


def rows_of(figures: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Labels and figures of a nested dictionary; lists as their length, unless they hold words."""
    rows: list[tuple[str, str]] = []
    for name, value in figures.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += rows_of(value, f"{label}, ")
        elif isinstance(value, list | tuple):
            words = all(isinstance(item, str | int | float) for item in value)
            rows.append((label, ", ".join(map(number, value)) if words else f"{len(value)}"))
        else:
            rows.append((label, number(value)))
    return rows


def written(title: str, result: Mapping[str, Any], look_at: str = "", tone: str = "good", *next: str) -> Card:
    """The card of an output: where it is, its figures, and the commands that take it."""
    rows = rows_of({name: value for name, value in result.items() if name != "out"})
    return Card(f"{title}, written to {result['out']}", rows, (), look_at, tone, next)
