"""`tracewheel sandbox`: how code of agents is isolated on this machine, and whether that holds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.look import Card, Grid
from tracewheel.core.errors import InfrastructureError


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", choices=("bubblewrap", "docker", "gvisor"), default="bubblewrap", help="default: bubblewrap")
    parser.add_argument("--image", metavar="NAME", help="image of docker and gvisor (default: python:3.11-slim)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Test the sandbox.

    Raises:
        ConfigError: there is no such sandbox on this machine.
        InfrastructureError: no box could be made, or a promise does not hold.
    """
    from tracewheel.sandbox import SandboxConfig
    from tracewheel.sandbox.bubblewrap import about
    from tracewheel.sandbox.making import untested_sandbox
    from tracewheel.sandbox.self_test import self_test

    given = {"kind": options.kind, **({"image": options.image} if options.image else {})}
    made = untested_sandbox(SandboxConfig.model_validate(given))
    version = about("bwrap") if options.kind == "bubblewrap" else f"{options.kind} by the docker client"
    promises = [{"promise": one.name, "holds": one.holds, "seen": one.seen} for one in self_test(made)]
    said = {"kind": options.kind, "version": version, "promises": promises, "holds": all(one["holds"] for one in promises)}
    if not said["holds"]:
        broken = ", ".join(f"{one['promise']} ({one['seen']})" for one in promises if not one["holds"])
        raise InfrastructureError(f"sandbox {options.kind}: not kept on this machine: {broken}")
    return said


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    rows = [(one["promise"], "yes" if one["holds"] else "no", one["seen"]) for one in result["promises"]]
    grid = Grid(("promise", "holds", "seen"), rows, figures=False)
    return Card(f"Sandbox {result['kind']}", parts=[grid], look_at=result["version"])


COMMAND = Command(
    "sandbox", "how code of agents is isolated on this machine: each promise, and whether it holds", add_options, run, card
)
