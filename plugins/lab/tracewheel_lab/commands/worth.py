"""`tracewheel runs worth`: what the next run of a work folder may gain, and what runs cost."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tracewheel import Card, Command, DataError, Grid, folder_of


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="work folder (default: runs)")
    says = "training tasks with new evidence in the next run (default: as the last decision of a schedule counted them)"
    parser.add_argument("--new-tasks", type=int, metavar="N", help=says)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Estimate.

    Raises:
        DataError: the folder holds no complete run, or `--new-tasks` is negative.
    """
    from tracewheel_lab.worth import next_run

    if options.new_tasks is not None and options.new_tasks < 0:
        raise DataError(f"--new-tasks {options.new_tasks}: 0 or more")
    return next_run(folder_of(options.folder, "DIR"), options.new_tasks)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rows = [
        (
            one["run"],
            str(one["verdict"] or "–"),
            _points(one["gain"]),
            _points(one["room"]),
            _points(one["new"]),
            _spent(one["cost"]),
            _spent(one["per_point"]),
        )
        for one in result["past"]
    ]
    headings = ("run", "verdict", "gain", "room", "new tasks", "cost", "cost of a point")
    title = f"The next run of {result['work_dir']}: {result['says']}"
    next_one = (
        "next",
        "",
        _points(result["gain"]),
        _points(result["room"]),
        _points(result["new"]),
        _spent(result["cost"]),
        "",
    )
    return Card(title, parts=[Grid(headings, [*rows, next_one])])


def _points(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _spent(cost: Mapping[str, Any] | None) -> str:
    """Seconds, tokens and money in a few words."""
    if not cost or cost["seconds"] is None:
        return "–"
    money = "" if cost["money"] is None else f", {cost['money']:.2f} {cost.get('currency', '')}".rstrip()
    return f"{cost['seconds']:.0f} s, {cost['tokens'] / 1e6:.2f} million tokens{money}"


COMMAND = Command(
    "runs worth",
    "what the next run of a work folder may gain, from the room that its tasks leave and past gains, and what runs cost",
    add_options,
    run,
    card,
)
