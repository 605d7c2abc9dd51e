"""`tracewheel federated simulate`: server and clients as processes of this machine, over the same sockets."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tracewheel import Command
from tracewheel_federated.commands.server import card, finished


def options(parser: ArgumentParser) -> None:
    parser.add_argument("federation", metavar="FEDERATION", help="YAML file of the federation, whose `clients` names theirs")


def run(options: Namespace) -> dict[str, Any]:
    """Make keys, start the server and all clients, and carry out the rounds; the clients work one after the other.

    Raises:
        ConfigError: a file is invalid, or names no clients.
        DataError: Flower is not installed.
        InfrastructureError: the federation failed.
    """
    from tracewheel import ConfigError
    from tracewheel_federated.processes import free_ports, make_keys, run_rounds, superlink, supernode
    from tracewheel_federated.settings import ClientConfig, FederationConfig

    settings = FederationConfig.load(options.federation)
    if not settings.clients:
        raise ConfigError(f"{options.federation}: clients: name the clients' files")
    clients = {file: ClientConfig.load(file) for file in settings.clients}
    keys = make_keys(settings, [client.name for client in clients.values()])
    turn = Path(settings.out) / "turn"
    turn.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as running:
        running.enter_context(superlink(settings, Path(options.federation)))
        for (file, client), port in zip(clients.items(), free_ports(len(clients)), strict=True):
            handed = client.model_copy(update={"keys": str(keys / "clients" / client.name), "server": settings.server.address})
            running.enter_context(supernode(handed, Path(file), port, turn))
        run_rounds(settings)
    return finished(settings)


COMMAND = Command("federated simulate", "a federation with all its clients on this machine", options, run, card)
