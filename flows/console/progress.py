"""Progress on the terminal: a bar, or a line now and then, for the running stage, and a line for each that has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tracewheel.core.progress import Progress as StageProgress
from tracewheel.core.progress import listening
from tracewheel.core.time_limits import stage_limit

COLOURS = {"Completed": "green", "Cached": "cyan"}
LABEL_WIDTH = 44
EVERY_SECONDS = 30.0
SAYS_LITTLE = 3  # units done, from which nobody can tell how long the others take


class TerminalReporter:
    """Writes to standard error, or to a console that is given; standard output is for results.

    A terminal shows a bar. Without one, a stage that runs for longer than `every` seconds prints a line that often, also when
    it reports nothing itself.
    """

    def __init__(self, every: float = EVERY_SECONDS, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._every = every
        self._current: TaskID | None = None
        self._stage: _Stage | None = None
        self._ended = threading.Event()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the bars on the screen during the block, or print lines."""
        if self.console.is_terminal:
            with self._bars:
                yield
            return
        self._ended.clear()
        lines = threading.Thread(target=self._print_lines, name="progress", daemon=True)
        lines.start()
        try:
            yield
        finally:
            self._ended.set()
            lines.join()

    def start(self, label: str) -> None:
        self.clear()
        self._stage = _Stage(label)
        self._current = self._bars.add_task(f"{label:<{LABEL_WIDTH}}", total=None, unit="")

    def move(self, progress: StageProgress) -> None:
        if stage := self._stage:
            stage.move(progress)
        if self._current is not None:
            unit = progress.unit + (f", {progress.tokens} tokens" if progress.tokens else "")
            self._bars.update(self._current, completed=progress.done, total=progress.total, unit=unit)

    def episodes(self, done: int, total: int) -> None:
        """`move` for those who count episodes."""
        self.move(StageProgress(done, total, "episodes"))

    def end(self, label: str, state: str, seconds: float) -> None:
        self.clear()
        colour = COLOURS.get(state, "red")
        self.console.print(f"{label:<{LABEL_WIDTH}} [{colour}]{state:<10}[/] {seconds:6.1f} s")

    def say(self, text: str) -> None:
        self.console.print(text, style="dim", markup=False)

    def _print_lines(self) -> None:
        said, stage = time.monotonic(), None
        while not self._ended.wait(min(1.0, self._every / 4)):
            now = time.monotonic()
            if stage is not self._stage:
                said, stage = now, self._stage
            elif stage and now >= said + self._every:
                self.console.print(stage.line(now), style="dim", markup=False, soft_wrap=True)
                said = now

    def clear(self) -> None:
        """Show no stage any more."""
        self._stage = None
        if self._current is not None:
            self._bars.remove_task(self._current)
            self._current = None


class _Stage:
    """A running stage. Its rates count from its first report, because loading takes its time before."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begun = time.monotonic()
        self._first: tuple[float, StageProgress] | None = None
        self._last: tuple[float, StageProgress] | None = None

    def move(self, progress: StageProgress) -> None:
        self._last = (time.monotonic(), progress)
        if self._first is None or progress.done < self._first[1].done or progress.total != self._first[1].total:
            self._first = self._last  # the stage counts something new

    def line(self, now: float) -> str:
        """Units and tokens done, the time taken, and what is left at this rate."""
        if self._first is None or self._last is None:
            return f"{self._label}: running for {_duration(now - self._begun)}"
        (since, first), (_, last) = self._first, self._last
        words = [f"{self._label}: {last.done} of {last.total} {last.unit}"]
        seconds, done = now - since, last.done - first.done
        if last.tokens:
            tokens = (last.tokens - first.tokens) / seconds if seconds > 0 else 0.0
            rate = f"{tokens:.0f}" if tokens >= 10 else f"{tokens:.2g}"  # a large model on a CPU samples less than one
            words.append(f"{last.tokens} tokens" + (f" ({rate} a second)" if tokens else ""))
        words.append(f"after {_duration(now - self._begun)}")
        if done > 0 and last.done >= max(SAYS_LITTLE, last.total / 50):
            words.append(f"about {_duration(seconds * (last.total - last.done) / done)} left")
        return ", ".join(words)


def _duration(seconds: float) -> str:
    """As in "45 s", "12 min" or "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def stage_shown(label: str, seconds: float | None) -> Iterator[None]:
    """Show the progress of a stage that a command runs by itself, and hold its time limit, `stage_seconds`.

    Raises:
        TimeLimitError: it took longer.
    """
    reporter = TerminalReporter()
    with reporter.shown(), listening(reporter.move), stage_limit(seconds, label):
        reporter.start(label)
        try:
            yield
        finally:
            reporter.clear()
