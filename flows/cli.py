"""The command `tracewheel`. Nothing heavy is imported before the command line is parsed."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from flows.commands.command import Command, find_commands, group_help
from flows.commands.moved import moved
from flows.console.encoding import clean, print_in_any_encoding
from flows.console.printing import print_error, print_result
from tracewheel import __version__
from tracewheel.core import stopping
from tracewheel.core.errors import (
    Answer,
    GateRefused,
    InputError,
    NotReproduced,
    TracewheelError,
    UnhealthyRun,
    WeakGrader,
)
from tracewheel.core.machine import UNSAFE_LOCAL
from tracewheel.core.own_code import described
from tracewheel.core.processes import end_with_spawner
from tracewheel.learner.backends.processes import is_first, started

DONE, FAILED, BAD_INPUT, REFUSED, UNHEALTHY, WITHIN, PARTED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 6, 130, 143
EXIT_CODES = {
    DONE: "done",
    BAD_INPUT: "bad input or config",
    REFUSED: "gate refused",
    UNHEALTHY: "the doctor or the audit found something severe",
    WITHIN: "a run made again is equal within tolerance",
    PARTED: "it parts",
    INTERRUPTED: "interrupted",
    TERMINATED: "stopped by SIGTERM",
    FAILED: "anything else",
}
EPILOG = f"exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Results go to standard output, all else to standard error.

    Args:
        arguments: Those of the command line by default; then the process is the command's, and signals end it in order.
    """
    options = None
    listens = arguments is None and not started()  # torchrun ends its processes itself
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if listens:
            stopping.listen()
        if says := moved(words):
            print(says, file=sys.stderr)
            return BAD_INPUT
        options = build_parser(words[0] if words else None).parse_args(words)
        return _carry_out(options.command, options)
    except stopping.Stopped as stop:
        print(f"tracewheel: {clean(str(stop))}", file=sys.stderr)
        if options and options.json:
            print_error(str(stop), "Stopped", stop.request.exit_code)
        return stop.request.exit_code
    finally:
        if listens:
            stopping.done()  # from here to the process's last moment


def _carry_out(command: Command, options: argparse.Namespace) -> int:
    print_in_any_encoding()
    try:
        with _results_alone():
            command.check_out(options)
            if getattr(options, "unsafe_local", False):
                os.environ[UNSAFE_LOCAL] = "1"  # and so for the worker processes
            result = command.run(options)
    except KeyboardInterrupt:
        print("tracewheel: interrupted; the same command resumes from the last complete stage", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, Answer) and error.result is not None:
            print_result(options, error.result)
            print(f"tracewheel: {f'{error.by}: ' if error.by else ''}{clean(str(error))}", file=sys.stderr)
            return exit_code(error)
        if options.debug:
            raise
        known = isinstance(error, TracewheelError)
        message = (
            str(error) if known else described(error) or f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        )
        print(f"tracewheel: error: {clean(message)}", file=sys.stderr)
        if options.json:
            print_error(message, type(error).__name__, exit_code(error))
        return exit_code(error)
    if is_first():
        print_result(options, result)
    return DONE


@contextlib.contextmanager
def _results_alone() -> Iterator[None]:
    """Keep standard output for the result: what libraries and child processes print meanwhile goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as restored:
        with contextlib.suppress(OSError):  # a stream is closed
            kept = os.dup(1)
            restored.callback(os.close, kept)
            restored.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        yield


def exit_code(error: Exception) -> int:
    """The exit code that an error stands for."""
    match error:
        case GateRefused():
            return REFUSED
        case UnhealthyRun() | WeakGrader():
            return UNHEALTHY
        case NotReproduced():
            return WITHIN if error.within else PARTED
        case InputError():
            return BAD_INPUT
        case _ if described(error):
            return BAD_INPUT
        case _:
            return FAILED


def build_parser(first: str | None = None) -> argparse.ArgumentParser:
    """The command line.

    Args:
        first: The first word that was typed: then the parser may know that command alone.
    """
    parser = argparse.ArgumentParser(
        prog="tracewheel", description="Turns the logged traces of an LLM agent into a better agent.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"tracewheel {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, Any] = {}
    for command in find_commands(first):
        group, _, name = command.name.rpartition(" ")
        if group and group not in groups:
            says = group_help(group)
            inner = commands.add_parser(group, help=says, description=f"{says}.", epilog=EPILOG)
            groups[group] = inner.add_subparsers(required=True, metavar="WHAT")
        command.add_to(groups[group] if group else commands, name, EPILOG)
    return parser


end_with_spawner()
if __name__ == "__main__":
    sys.exit(main())
