"""`tracewheel approve`: a person's decision on a promotion that waits (`gate.approval: required`)."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_approve_command(commands: Any, exit_codes: str) -> None:
    """Add the command to the command line."""
    summary = "approve or refuse the promotion of a run that waits for it (gate.approval: required)"
    parser = commands.add_parser("approve", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.approve:approve")
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or an id")
    parser.add_argument("--by", required=True, metavar="NAME", help="who decides")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, kept with the decision")
    parser.add_argument("--refuse", action="store_true", help="leave the champion as it is, for good")
    parser.add_argument(
        "--run-dir", default="runs", metavar="DIR", help="work folder in which ids are looked up (default: runs)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def approve(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel approve`.

    Raises:
        InputError: the run does not wait, or is decided already.
        DataError: another champion came in between.
        InfrastructureError: MLflow does not answer; the same command again carries the decision out.
    """
    from tracewheel.core.named_run import run_named

    record = run_named(options.run, options.run_dir)
    decision = "refused" if options.refuse else "approved"
    return {"run_id": record.run_id, **decided(record, decision, options.by, options.note, debug=options.debug)}


def decided(record: Any, decision: str, by: str, note: str, *, debug: bool = False) -> dict[str, Any]:
    """Decide on a run and carry it out; for the command and the dashboard."""
    from flows.setup import prepare_environment

    prepare_environment(str(record.path.parent), debug=debug)
    from tasks.tracking.approval import approve as decide_and_carry_out

    return decide_and_carry_out(record, decision, by, note, lambda text: print(text, file=sys.stderr)).to_record()
