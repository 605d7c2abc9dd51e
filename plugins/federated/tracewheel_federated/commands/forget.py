"""`tracewheel federated forget`: which rounds hold something of a client's logs, and training again without it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tracewheel import Command
from tracewheel_federated.commands.release import options as of_a_client


def options(parser: ArgumentParser) -> None:
    of_a_client(parser)
    parser.add_argument(
        "--discard", action="store_true", help="delete those rounds and leave the client out, so that `server` trains again"
    )


def run(options: Namespace) -> dict[str, Any]:
    """Name the rounds; with `--discard`, delete what holds something of the client.

    Raises:
        DataError: the client took no part.
    """
    import shutil

    from tracewheel_federated.provenance import forgetting, write_lineage
    from tracewheel_federated.quarantine import hold
    from tracewheel_federated.settings import FederationConfig

    settings = FederationConfig.load(options.federation)
    out = Path(settings.out)
    found = forgetting(out, options.client)
    if not options.discard:
        return {**found, "discarded": False}
    hold(out, options.client, "forgotten")
    for step in sorted((out / "rounds").iterdir()):
        if int(step.name.partition("-")[0]) > found["clean"]:
            shutil.rmtree(step)
    shutil.rmtree(out / "final", ignore_errors=True)
    (out / "verdict.json").unlink(missing_ok=True)
    write_lineage(settings)
    return {**found, "discarded": True}


COMMAND = Command("federated forget", "which rounds hold something of a client's logs", options, run)
