"""`tracewheel make-tasks`: tasks that nobody has tried, from an environment's generator or a file of a benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def allow_unsafe_local(parser: argparse.ArgumentParser) -> None:
    """The option of commands that may run code of agents; `flows.cli` sets the variable that it stands for."""
    parser.add_argument("--unsafe-local", action="store_true", help="allow the sandbox unsafe_local: agents' code as this user")


def add_make_tasks_command(commands: Any, exit_codes: str) -> None:
    """Add the command to the command line."""
    summary = "write tasks without logs, generated or read from a file, as a log that `ingest` takes"
    parser = commands.add_parser("make-tasks", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.make_tasks:make_tasks")
    parser.add_argument("kind", metavar="KIND", help="an environment: a built-in name, or module:Class")
    parser.add_argument("--args", default="", metavar="JSON", help="the environment's arguments, as a JSON object")
    parser.add_argument(
        "--from", dest="source", metavar="PATH", help="the file or folder of a benchmark (default: the environment's generator)"
    )
    parser.add_argument("--n", type=int, default=200, help="how many tasks to generate (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="the generator's seed (default: 0)")
    parser.add_argument("--out", required=True, metavar="FILE", help="the log to write, one JSON object a line")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    allow_unsafe_local(parser)
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def make_tasks(options: argparse.Namespace) -> dict[str, Any]:
    """Write the tasks; the whole file or nothing.

    Raises:
        ConfigError: the environment makes or reads no tasks.
        DataError: the file holds none, or is damaged.
    """
    from tracewheel.core.given_kinds import give
    from tracewheel.core.store import write_whole
    from tracewheel.curation.task_file import TaskSource, kind_of, task_lines

    path = Path(options.source) if options.source else None
    kind = kind_of(options.kind, options.args)
    give(kind)
    lines, counts = task_lines(TaskSource(kind, path, options.n, options.seed))
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, "".join(f"{line}\n" for line in lines))
    return {"out": options.out, "environment": options.kind, **counts}
