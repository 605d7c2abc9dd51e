"""`tracewheel runs report`: the report of a complete run, written again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.commands.command import Command, FileOut
from flows.console.arguments import finished_run, profile_of, profile_options


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--out", metavar="FILE", help="where to write it (default: in the run's record)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    found, summary = finished_run(profile_of(options, prefect=True))
    from tracewheel.dashboard.files import export_runs

    page = options.out or summary["report"]
    export_runs([found.record], Path(page))
    return {"report": str(page)}


COMMAND = Command(
    "runs report", "write the report of a complete run again", add_options, run, writes=FileOut("page", (".html", ".htm"))
)
