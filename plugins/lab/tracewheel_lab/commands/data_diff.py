"""`tracewheel data diff`: what changed between two versions of a data set."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tracewheel import Block, Card, Command, DataError, Grid, folder_of

EXAMPLES_SHOWN = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="output of curate or of ingest")
    parser.add_argument("after", metavar="B", help="a later one")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="entries of each list (default 100); 0: all")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel_lab.dataset_diff import diff_datasets

    limit = options.limit or None
    if limit is not None and limit < 0:
        raise DataError(f"--limit {limit}: a number of entries, or 0 for all")
    return diff_datasets(folder_of(options.before, "A"), folder_of(options.after, "B"), limit=limit)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """A table of the counts, and the first few changes."""
    rows = []
    for name, counts in result["counts"].items():
        part = result[name]
        numbers = (counts["before"], counts["after"], *(part[what] for what in ("added", "removed", "reworded", "changed")))
        labels = ", ".join(f"{label} {count}" for label, count in part["by_label"].items())
        rows.append((name, *map(str, numbers), labels))
    lines = [f"{name}: {line}" for name in result["counts"] for line in _lines(result[name]["lists"])]
    return Card(
        f"{result['before']} → {result['after']}" + (": the same" if result["same"] else ""),
        parts=[
            Grid(("", "before", "after", "added", "removed", "reworded", "changed", "labels"), rows),
            Block("", lines),
        ],
    )


def _lines(lists: Mapping[str, list[Any]]) -> list[str]:
    """The first entries of each list, in words."""
    lines = []
    for what, entries in lists.items():
        for entry in entries[:EXAMPLES_SHOWN]:
            match what:
                case "changed":
                    changes = [f"{label} {pair[0]} → {pair[1]}" for label, pair in entry.items() if label != "id"]
                    lines.append(f"changed {entry['id']}: {', '.join(changes)}")
                case "reworded":
                    lines.append(f"reworded {entry['before']} → {entry['after']}")
                case _:
                    lines.append(f"{what} {entry}")
    return lines


COMMAND = Command(
    "data diff",
    "what changed between two versions: tasks and traces added, removed, labelled otherwise",
    add_options,
    run,
    card,
)
