"""`tracewheel compare`: finished runs side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command, FileOut
from flows.console.arguments import ids_option
from flows.console.look import Block, Card, Grid
from tracewheel.core.errors import InputError

if TYPE_CHECKING:
    from tracewheel.comparison.document import Section

FORMATS = ("text", "json", "markdown", "html")
PAGE = FileOut("page", (".html", ".htm"))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run's folder, a work folder (its latest complete run), or an id; the first is the base",
    )
    ids_option(parser)
    parser.add_argument("--policy", default="rl", metavar="NAME", help="policy to compare task by task (default: rl)")
    parser.add_argument("--excerpts", type=int, default=5, metavar="N", help="gained and lost tasks to quote (default 5 each)")
    format_options(parser)


def format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text; --json is --format json")
    parser.add_argument("--out", metavar="FILE", help="write it to a file instead of standard output")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compare.

    Raises:
        InputError: `--excerpts` is negative.
        DataError: a run is not there, or a file of it cannot be read.
    """
    from tracewheel.comparison.compare import check_runs, compare_runs
    from tracewheel.comparison.compare_page import sections_of, title_of
    from tracewheel.comparison.finished_run import FinishedRun
    from tracewheel.core.run_record import run_named

    if options.excerpts < 0:
        raise InputError(f"--excerpts {options.excerpts}: 0 or more")
    runs = [FinishedRun(run_named(name, options.run_dir)) for name in options.runs]
    check_runs(runs)
    found = compare_runs(runs, policy=options.policy, excerpts=options.excerpts)
    return in_format(options, found, title_of(found), sections_of(found))


def in_format(options: argparse.Namespace, found: dict[str, Any], title: str, sections: Sequence[Section]) -> dict[str, Any]:
    """A result in the format that was asked for, on standard output or in a file."""
    from tracewheel.comparison.document import Table, to_markdown
    from tracewheel.core.store import write_whole

    if options.json or (options.format == "text" and not options.out):
        parts: list[Grid | Block] = []
        for section in sections:
            parts.append(Block(section.heading, section.sentences))
            for part in section.parts:
                if isinstance(part, Table):
                    parts += [Block(part.title, [])] if part.title else []
                    parts.append(Grid(part.headings, part.rows))
                else:
                    parts.append(Block(part.title, part.lines))
        return {**found, "show": Card(title, parts=parts)}
    match options.format:
        case "json":
            text = json.dumps(found, indent=2, default=str) + "\n"
        case "html":
            from tracewheel.dashboard.files import document_file

            text = document_file(title, sections)
        case _:  # a file of text is Markdown
            text = to_markdown(title, sections)
    if not options.out:
        return {**found, "show": text}
    write_whole(Path(options.out), text)
    return {**found, "show": f"{title}: {options.out}\n"}


COMMAND = Command(
    "compare",
    "two or more finished runs: what differs in settings, data, success and cost; tasks gained and lost",
    add_options,
    run,
    writes=PAGE,
)
