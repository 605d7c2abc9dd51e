"""`tracewheel data filter`: how many tasks a filter would keep; changes nothing."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import folder_of
from flows.console.look import Card, Grid


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("curated", metavar="CURATED", help="output of curate")
    parser.add_argument(
        "filter", metavar="FILTER", help='as curation.filter, for example "0 < pass_rate < 0.6 and attempts >= 4"'
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel.core.files import read_table
    from tracewheel.curation.curated_folder import TASKS_FILE
    from tracewheel.curation.filters import Filter, dry_run_by_split

    wanted = Filter(options.filter)
    tasks = read_table(folder_of(options.curated, "CURATED") / TASKS_FILE)
    return {"curated": options.curated, "filter": options.filter, **dry_run_by_split(wanted, tasks)}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """What the filter keeps, and what each of its clauses removes."""
    headings = ("", "tasks", "kept", *(f"removed by {clause['clause']}" for clause in result["clauses"]))
    rows = [
        (name, str(part["tasks"]), str(part["kept"]), *map(_removed, part["clauses"]))
        for name, part in {"all": result, **result["splits"]}.items()
    ]
    return Card(
        f"{result['kept']} of {result['tasks']} tasks are kept",
        parts=[Grid(headings, rows)],
        look_at="alone: no other clause removes them; unknown: a value that the clause compares is missing",
        next=[
            f"tracewheel curate PROFILE.yaml --traces DIR --set {shlex.quote('curation.filter=' + result['filter'])} --out DIR"
        ],
    )


def _removed(clause: Mapping[str, Any]) -> str:
    """How many tasks a clause removes."""
    if not clause["removes"]:
        return "0"
    unknown = f", {clause['unknown']} unknown" if clause["unknown"] else ""
    return f"{clause['removes']} ({clause['removes_alone']} alone{unknown})"


COMMAND = Command(
    "data filter",
    "how many tasks a filter would keep, and what each clause removes; changes nothing",
    add_options,
    run,
    card,
)
