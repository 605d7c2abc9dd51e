"""`tracewheel sandbox`: how code of agents is isolated on this machine, and whether that holds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracewheel import Command, InfrastructureError

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--kind", choices=("bubblewrap", "docker", "gvisor"), default="bubblewrap", help="default: bubblewrap")
    parser.add_argument("--image", metavar="NAME", help="image of docker and gvisor (default: python:3.11-slim)")


def run(options: Namespace) -> dict[str, Any]:
    """Test the sandbox.

    Raises:
        ConfigError: there is no such sandbox on this machine.
        InfrastructureError: no box could be made, or a promise does not hold.
    """
    from tracewheel_worlds.sandbox import SandboxConfig
    from tracewheel_worlds.sandbox.bubblewrap import about
    from tracewheel_worlds.sandbox.making import untested_sandbox
    from tracewheel_worlds.sandbox.self_test import self_test

    given = {"kind": options.kind, **({"image": options.image} if options.image else {})}
    made = untested_sandbox(SandboxConfig.model_validate(given))
    version = about("bwrap") if options.kind == "bubblewrap" else f"{options.kind} by the docker client"
    promises = [{"promise": one.name, "holds": one.holds, "seen": one.seen} for one in self_test(made)]
    if broken := [f"{one['promise']} ({one['seen']})" for one in promises if not one["holds"]]:
        raise InfrastructureError(f"sandbox {options.kind}: not kept on this machine: {', '.join(broken)}")
    return {"kind": options.kind, "version": version, "promises": promises, "holds": True}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """The promises in a table."""
    from tracewheel import Card, Grid

    rows = [(one["promise"], one["seen"]) for one in result["promises"]]
    return Card(
        f"Sandbox {result['kind']}: all promises hold",
        [("version", result["version"])],
        [Grid(("promise", "seen"), rows, False)],
    )


COMMAND = Command(
    "sandbox", "how code of agents is isolated on this machine: each promise, and whether it holds", options, run, card
)
