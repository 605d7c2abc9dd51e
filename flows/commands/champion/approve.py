"""`tracewheel champion approve`: a person's decision on a promotion that waits (`gate.approval: required`)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import note
from flows.console.look import Card


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or an id")
    says = "work folder in which ids are looked up (default: runs)"
    parser.add_argument("--run-dir", default="runs", metavar="DIR", help=says)
    parser.add_argument("--by", required=True, metavar="NAME", help="who decides")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, kept with the decision")
    parser.add_argument("--refuse", action="store_true", help="leave the champion as it is, for good")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Decide on a run and carry it out.

    Raises:
        InputError: the run does not wait, or is decided already.
        DataError: another champion came in between.
        InfrastructureError: MLflow does not answer; the same command again carries the decision out.
    """
    from flows.setup import prepare_environment
    from tracewheel.core.run_record import run_named

    record = run_named(options.run, options.run_dir)
    prepare_environment(str(record.path.parent), debug=options.debug)
    from flows.wheel_stages import bring
    from tasks.tracking.approval import approve
    from tracewheel.config import load_stored_config

    decision = "refused" if options.refuse else "approved"
    approval = approve(record, decision, options.by, options.note, note)
    bring(load_stored_config(record.path).model_copy(update={"work_dir": str(record.path.parent)}), note)
    return {"run_id": record.run_id, **approval.to_record()}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    promoted = result["outcome"] == "promoted"
    rows = [("decided by", result["by"]), ("at", result["at"]), *([("note", result["note"])] if result["note"] else [])]
    return Card(
        f"Run {result['run_id']}: {result['decision']}",
        rows,
        look_at="it is the champion now" if promoted else "the champion stays as it was",
        tone="good" if promoted else "warning",
        next=["tracewheel dashboard"],
    )


COMMAND = Command("champion approve", "approve or refuse the promotion of a run that waits for it", add_options, run, card)
