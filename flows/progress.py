"""Progress on the terminal: a bar for the running stage, a line with its state for each that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

COLOURS = {"Completed": "green", "Cached": "cyan"}
LABEL_WIDTH, WIDTH = 44, 120


def result_console() -> Console:
    """Where results are printed: as wide as the terminal; without one, wide enough for the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


class TerminalReporter:
    """Writes to standard error; standard output is for results. Without a terminal there are no bars."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._current: TaskID | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the bars on the screen during the block."""
        with self._bars:
            yield

    def start(self, label: str) -> None:
        self._drop()
        self._current = self._bars.add_task(f"{label:<{LABEL_WIDTH}}", total=None)

    def move(self, done: int, total: int) -> None:
        if self._current is not None:
            self._bars.update(self._current, completed=done, total=total)

    def end(self, label: str, state: str, seconds: float) -> None:
        self._drop()
        colour = COLOURS.get(state, "red")
        self.console.print(f"{label:<{LABEL_WIDTH}} [{colour}]{state:<10}[/] {seconds:6.1f} s")

    def say(self, text: str) -> None:
        self.console.print(text, style="dim", markup=False)

    def _drop(self) -> None:
        if self._current is not None:
            self._bars.remove_task(self._current)
            self._current = None
