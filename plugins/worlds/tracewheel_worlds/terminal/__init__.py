"""Terminal: a shell over a task's folder, judged by the files that it leaves or by a check that runs elsewhere."""

from tracewheel_worlds.terminal.environment import TerminalEnvironment

__all__ = ["TerminalEnvironment"]
