"""`tracewheel runs labels`: what people said of a run's trajectories, how far its graders agree, and MLflow told of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import run_options
from flows.console.look import Card, Grid, number, percent


def add_options(parser: argparse.ArgumentParser) -> None:
    run_options(parser)
    parser.add_argument("--local", action="store_true", help="leave MLflow as it is")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Count the labels and compare the graders with them.

    Raises:
        DataError: there is no such run, a line of its labels is damaged, or it has no MLflow run.
        InfrastructureError: MLflow does not answer.
    """
    from flows.setup import prepare_environment
    from tracewheel.core.run_record import run_named
    from tracewheel.dashboard.review import scores_at
    from tracewheel.operations.labels import calibrate, counts, labels_of
    from tracewheel.report.finished_run import FinishedRun

    record = run_named(options.run, options.run_dir)
    said = labels_of(record.path)
    agreement = [asdict(row) for row in calibrate(said, scores_at(FinishedRun(record), said))]
    result: dict[str, Any] = {"run_id": record.run_id, "labels": counts(said), "agreement": agreement, "mlflow": None}
    if not options.local:
        prepare_environment(None, debug=options.debug)
        from tasks.tracking.labels import log_labels

        result["mlflow"] = log_labels(record)
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
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


COMMAND = Command(
    "runs labels",
    "count people's labels of a run, compare its graders with them, and log them to MLflow as assessments",
    add_options,
    run,
    card,
)
