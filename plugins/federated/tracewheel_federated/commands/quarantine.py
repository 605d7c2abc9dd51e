"""`tracewheel federated quarantine`: leaves a client out until it is released."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tracewheel import Command
from tracewheel_federated.commands.release import options as of_a_client


def options(parser: ArgumentParser) -> None:
    of_a_client(parser)
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; it is kept")


def run(options: Namespace) -> dict[str, Any]:
    """Quarantine a client."""
    from tracewheel_federated.quarantine import hold
    from tracewheel_federated.settings import FederationConfig

    hold(Path(FederationConfig.load(options.federation).out), options.client, options.reason)
    return {"client": options.client, "reason": options.reason}


COMMAND = Command("federated quarantine", "leave a client's updates out", options, run)
