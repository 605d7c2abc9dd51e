"""`tracewheel compare`: finished runs side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import InputError

if TYPE_CHECKING:
    from tracewheel.comparison.document import Section

FORMATS = ("text", "json", "markdown", "html")


def add_compare_command(commands: Any, exit_codes: str) -> None:
    """Add the command to the command line."""
    summary = "two or more finished runs: what differs in settings, data, success and cost; tasks gained and lost"
    parser = commands.add_parser("compare", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.compare:compare")
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run's folder, a work folder (its latest complete run), or an id; the first is the base",
    )
    parser.add_argument(
        "--run-dir", default="runs", metavar="DIR", help="work folder in which ids are looked up (default: runs)"
    )
    parser.add_argument("--policy", default="rl", metavar="NAME", help="policy to compare task by task (default: rl)")
    parser.add_argument("--excerpts", type=int, default=5, metavar="N", help="gained and lost tasks to quote (default 5 each)")
    add_format(parser)


def add_format(parser: argparse.ArgumentParser) -> None:
    """`--format`, `--out` and the options that all commands have."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("--out", metavar="FILE", help="write it to a file instead of standard output")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output (--format json)")
    parser.add_argument("--debug", action="store_true", help="show stack traces")


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel compare`.

    Raises:
        InputError: `--excerpts` is negative.
        DataError: a run is not there, or a file of it cannot be read.
    """
    from tracewheel.comparison.compare import check_runs, compare_runs
    from tracewheel.comparison.compare_page import sections_of, title_of
    from tracewheel.comparison.finished_run import FinishedRun
    from tracewheel.core.named_run import run_named

    if options.excerpts < 0:
        raise InputError(f"--excerpts {options.excerpts}: 0 or more")
    runs = [FinishedRun(run_named(name, options.run_dir)) for name in options.runs]
    check_runs(runs)
    found = compare_runs(runs, policy=options.policy, excerpts=options.excerpts)
    return shown(options, found, title_of(found), sections_of(found))


def shown(options: argparse.Namespace, found: dict[str, Any], title: str, sections: Sequence[Section]) -> dict[str, Any]:
    """A result in the format that was asked for, on standard output or in a file."""
    if options.json:
        return found
    if options.out or options.format != "text":
        text = as_format(options.format, found, title, sections)
        if not options.out:
            return {"show": lambda: sys.stdout.write(text)}
        from tracewheel.core.store import write_whole

        write_whole(Path(options.out), text)
        return {"show": lambda: print(f"{title}: {options.out}")}
    return {"show": lambda: show_sections(title, sections)}


def as_format(kind: str, found: dict[str, Any], title: str, sections: Sequence[Section]) -> str:
    """A result as text."""
    from tracewheel.comparison.document import to_markdown

    match kind:
        case "json":
            return json.dumps(found, indent=2, default=str) + "\n"
        case "html":
            from tracewheel.dashboard.files import document_file

            return document_file(title, sections)
        case _:  # a file of text is Markdown
            return to_markdown(title, sections)


def show_sections(title: str, sections: Sequence[Section]) -> None:
    """Print sections to standard output."""
    from flows.console.look import Block, Card, Grid, show_card
    from tracewheel.comparison.document import Table

    show_card(Card(title))
    for section in sections:
        parts: list[Grid | Block] = [Block(section.heading, section.sentences)]
        for part in section.parts:
            if isinstance(part, Table):
                parts += [Block(part.title, [])] if part.title else []
                parts.append(Grid(part.headings, part.rows))
            else:
                parts.append(Block(part.title, part.lines))
        show_card(Card("", parts=parts))
