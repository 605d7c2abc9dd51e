"""`tracewheel federated release`: uses a quarantined client's updates again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tracewheel import Command


def options(parser: ArgumentParser) -> None:
    parser.add_argument("federation", metavar="FEDERATION", help="YAML file of the federation")
    parser.add_argument("client", metavar="CLIENT", help="the client's name")


def run(options: Namespace) -> dict[str, Any]:
    """Release a client.

    Raises:
        DataError: it is not quarantined.
    """
    from tracewheel_federated.quarantine import release
    from tracewheel_federated.settings import FederationConfig

    out = Path(FederationConfig.load(options.federation).out)
    return {"client": options.client, "was quarantined because": release(out, options.client)}


COMMAND = Command("federated release", "use a quarantined client's updates again", options, run)
