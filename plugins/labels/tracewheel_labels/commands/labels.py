"""`tracewheel runs labels`: what people said of a run's trajectories, how far its graders agree, and MLflow told of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tracewheel import Card, Command, Grid


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or an id")
    says = "work folder in which ids are looked up (default: runs)"
    parser.add_argument("--run-dir", default="runs", metavar="DIR", help=says)
    parser.add_argument("--local", action="store_true", help="leave MLflow as it is")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Count the labels and compare the graders with them.

    Raises:
        DataError: there is no such run, a line of its labels is damaged, or it has no MLflow run.
        InfrastructureError: MLflow does not answer.
    """
    from tracewheel import FinishedRun, run_named
    from tracewheel_labels.labels import calibrate, counts, labels_of
    from tracewheel_labels.queue import scores_at

    record = run_named(options.run, options.run_dir)
    finished, said = FinishedRun(record), labels_of(record.path)
    agreement = [asdict(row) for row in calibrate(said, scores_at(finished, said))]
    result: dict[str, Any] = {"run_id": record.run_id, "labels": counts(said), "agreement": agreement, "mlflow": None}
    if not options.local:
        from tracewheel import prepare_environment

        prepare_environment(None, debug=options.debug)
        from tracewheel_labels.in_mlflow import log_labels

        result["mlflow"] = log_labels(finished, lambda text: print(f"tracewheel: {text}", file=sys.stderr))
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """What people said of a run."""
    told = result["mlflow"]
    rows = [(name, str(count)) for name, count in result["labels"].items()]
    if told is not None:
        rows.append(("MLflow", ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in told.items())))
    table = [
        [
            f"{row['grader']}, {row['group'] or 'all labelled'}",
            f"{row['rate']:.1%}",
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
