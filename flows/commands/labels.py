"""`tracewheel labels`: what people said of a run's trajectories, how far its graders agree, and MLflow told of it."""

from __future__ import annotations

import argparse
from typing import Any


def add_labels_command(commands: Any, exit_codes: str) -> None:
    """Add the command to the command line."""
    summary = "count people's labels of a run, compare its graders with them, and log them to MLflow as assessments"
    parser = commands.add_parser("labels", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.labels:labels")
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or an id")
    parser.add_argument(
        "--run-dir", default="runs", metavar="DIR", help="work folder in which ids are looked up (default: runs)"
    )
    parser.add_argument("--local", action="store_true", help="leave MLflow as it is")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def labels(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel labels`.

    Raises:
        DataError: there is no such run, a line of its labels is damaged, or it has no MLflow run.
        InfrastructureError: MLflow does not answer.
    """
    from dataclasses import asdict

    from flows.setup import prepare_environment
    from tracewheel.comparison.finished_run import FinishedRun
    from tracewheel.core.named_run import run_named
    from tracewheel.dashboard.review import scores_at
    from tracewheel.operations.label_agreement import calibrate
    from tracewheel.operations.labels import counts, labels_of

    record = run_named(options.run, options.run_dir)
    said = labels_of(record.path)
    agreement = [asdict(row) for row in calibrate(said, scores_at(FinishedRun(record), said))]
    result: dict[str, Any] = {"run_id": record.run_id, "labels": counts(said), "agreement": agreement, "mlflow": None}
    if not options.local:
        prepare_environment(None, debug=options.debug)
        from tasks.tracking.labels import log_labels

        result["mlflow"] = log_labels(record)
    return result
