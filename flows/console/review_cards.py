"""What the commands of the review say on a terminal: decisions, labels, the dashboard."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.console.arguments import profile_words
from flows.console.look import Card, Grid, number, percent

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


def calibrate_judge_card(options: Options, result: Result) -> Card:
    """How far a judge agrees with labels."""
    kappa, bias = result["kappa"], result["length_bias"]
    names = ("agreement", "false_accept", "false_reject")
    table = [[name.replace("_", " "), percent(result[name]["rate"]), _interval(result[name]["interval"])] for name in names]
    shown = "-" if kappa["value"] is None else f"{kappa['value']:.2f}"
    between = "-" if kappa["interval"] is None else f"{kappa['interval'][0]:.2f} to {kappa['interval'][1]:.2f}"
    rows = [
        ("labelled", number(result["labelled"])),
        ("without a verdict", number(result["without_verdict"])),
        ("flagged", number(result["flagged"])),
        ("length bias", "-" if bias is None else f"{bias['correlation']:+.2f} (p = {bias['p_value']:.2g})"),
    ]
    grid = Grid(("figure", "value", "95% interval"), [*table, ["Cohen's kappa", shown, between]])
    return Card("The judge and the labels", rows, [grid], next=[f"tracewheel retrain {profile_words(options)}"])


def _interval(ends: list[float]) -> str:
    return f"{ends[0]:.1%} to {ends[1]:.1%}"
