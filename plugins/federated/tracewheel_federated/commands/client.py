"""`tracewheel federated client`: takes part in a federation with this house's logs, until it is stopped."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tracewheel import Command


def options(parser: ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", help="YAML file of the client")
    parser.add_argument("--port", type=int, default=9094, help="on this machine, for its own processes (default 9094)")


def run(options: Namespace) -> dict[str, Any]:
    """Answer the server's orders until the server is gone for good or the command is stopped.

    Raises:
        ConfigError: a file is invalid.
        DataError: Flower is not installed.
    """
    from tracewheel_federated.processes import supernode
    from tracewheel_federated.settings import ClientConfig

    settings = ClientConfig.load(options.client)
    settings.own()  # an invalid profile is an error at the start
    with supernode(settings, Path(options.client), options.port) as process:
        code = process.wait()
    return {"client": settings.name, "exit_code": code, "log": str(Path(settings.out) / "flower" / "supernode.log")}


COMMAND = Command("federated client", "take part in a federation with this house's logs", options, run)
