"""`tracewheel data make-tasks`: tasks that nobody has tried, from an environment's generator or a file of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel import Card, Command, FileOut, unsafe_option


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help="an environment: a built-in name, or module:Class")
    parser.add_argument("--args", default="", metavar="JSON", help="the environment's arguments, as a JSON object")
    parser.add_argument(
        "--from", dest="source", metavar="PATH", help="the file or folder of a benchmark (default: the environment's generator)"
    )
    parser.add_argument("--n", type=int, default=200, help="how many tasks to generate (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="the generator's seed (default: 0)")
    parser.add_argument("--out", required=True, metavar="FILE", help="the log to write, one JSON object a line")
    unsafe_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write the tasks; the whole file or nothing.

    Raises:
        ConfigError: the environment makes or reads no tasks.
        DataError: the file holds none, or is damaged.
    """
    from tracewheel import give, write_whole
    from tracewheel_projects.task_file import TaskSource, kind_of, task_lines

    path = Path(options.source) if options.source else None
    kind = kind_of(options.kind, options.args)
    give(kind)
    lines, counts = task_lines(TaskSource(kind, path, options.n, options.seed))
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, "".join(f"{line}\n" for line in lines))
    return {"out": options.out, "environment": options.kind, **counts}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    return Card(
        f"{result['tasks']:,} tasks of {result['environment']} written to {result['out']}",
        [(name, ", ".join(f"{part} {count}" for part, count in result[name].items())) for name in ("families", "tiers")],
        look_at="nobody has tried them: set curation.min_attempts to 0",
        next=[f"tracewheel ingest {result['out']} --out DIR"],
    )


COMMAND = Command(
    "data make-tasks",
    "write tasks without logs, generated or read from a file, as a log that `ingest` takes",
    add_options,
    run,
    card,
    FileOut("log", (".jsonl",)),
)
