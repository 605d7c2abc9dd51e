"""What the commands of the review say on a terminal: decisions, labels, the dashboard."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.look import Card, Grid, number, percent

Options = argparse.Namespace
Result = Mapping[str, Any]


def approve_card(options: Options, result: Result) -> Card:
    """A decision on a promotion that waited."""
    promoted = result["outcome"] == "promoted"
    rows = [("decided by", result["by"]), ("at", result["at"]), *([("note", result["note"])] if result["note"] else [])]
    return Card(
        f"Run {result['run_id']}: {result['decision']}",
        rows,
        look_at="it is the champion now" if promoted else "the champion stays as it was",
        tone="good" if promoted else "warning",
        next=["tracewheel dashboard"],
    )


def dashboard_card(options: Options, result: Result) -> Card:
    """What an export wrote, or where the dashboard was."""
    if "out" not in result:
        return Card(f"The dashboard at {result['address']} has ended", next=["tracewheel dashboard"])
    rows = [("pages", ", ".join(result["pages"])), ("bytes", number(result["bytes"]))]
    return Card(f"Written to {result['out']}", rows, look_at=f"open {result['out']}", next=["tracewheel dashboard"])


def labels_card(options: Options, result: Result) -> Card:
    """What people said of a run."""
    told = result["mlflow"]
    rows = [(name, number(count)) for name, count in result["labels"].items()]
    if told is not None:
        rows.append(("MLflow", ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in told.items())))
    table = [
        [
            f"{row['grader']}, {row['group'] or 'all labelled'}",
            percent(row["rate"]),
            f"{row['interval'][0]:.1%} to {row['interval'][1]:.1%}",
            f"{row['agreeing']} of {row['labelled']}",
        ]
        for row in result["agreement"]
        if row["grader"] == "score" or not row["group"]
    ]
    return Card(
        f"Labels of run {result['run_id']}",
        rows,
        [Grid(("grader agrees with people", "rate", "interval", "trajectories"), table)] if table else [],
        next=["tracewheel dashboard"],
    )
