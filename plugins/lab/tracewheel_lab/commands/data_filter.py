"""`tracewheel data filter`: how many tasks a filter would keep; changes nothing."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracewheel import Card, Command, DataError, Grid, folder_of

if TYPE_CHECKING:
    import pandas

    from tracewheel import Filter

TASKS = "tasks.parquet"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("curated", metavar="CURATED", help="output of curate")
    parser.add_argument(
        "filter", metavar="FILTER", help='as curation.filter, for example "0 < pass_rate < 0.6 and attempts >= 4"'
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The tasks that a filter would keep and remove, in total and by split.

    Raises:
        ConfigError: the filter is none, or names no column.
        DataError: the folder is not what `tracewheel curate` wrote.
    """
    from tracewheel import Filter, read_table

    wanted = Filter(options.filter)
    tasks = read_table(folder_of(options.curated, "CURATED") / TASKS)
    if "split" not in tasks:
        raise DataError(f"{TASKS}: no column 'split'; name the folder that `tracewheel curate` wrote")
    parts = {str(split): _described(wanted, part) for split, part in tasks.groupby("split", sort=False)}
    return {"curated": options.curated, "filter": options.filter, **_described(wanted, tasks), "splits": parts}


def _described(wanted: Filter, tasks: pandas.DataFrame) -> dict[str, Any]:
    return {"tasks": len(tasks), "kept": int(wanted.keep(tasks).sum()), "clauses": wanted.dry_run(tasks)}


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
