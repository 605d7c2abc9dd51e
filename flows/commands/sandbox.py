"""`tracewheel sandbox`: how code of agents is isolated on this machine, and whether that holds."""

from __future__ import annotations

import argparse
from typing import Any

from tracewheel.core.errors import InfrastructureError


def add_sandbox_command(commands: Any, exit_codes: str) -> None:
    """The command line of `sandbox`."""
    summary = "how code of agents is isolated on this machine: each promise, and whether it holds"
    parser = commands.add_parser("sandbox", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.sandbox:sandbox")
    parser.add_argument("--kind", choices=("bubblewrap", "docker", "gvisor"), default="bubblewrap", help="default: bubblewrap")
    parser.add_argument("--image", metavar="NAME", help="image of docker and gvisor (default: python:3.11-slim)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def allow_unsafe_local(parser: argparse.ArgumentParser) -> None:
    """The option of commands that may run code of agents; `flows.cli` sets the variable that it stands for."""
    parser.add_argument("--unsafe-local", action="store_true", help="allow the sandbox unsafe_local: agents' code as this user")


def sandbox(options: argparse.Namespace) -> dict[str, Any]:
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
        show_promises(said)
        broken = ", ".join(str(one["promise"]) for one in promises if not one["holds"])
        raise InfrastructureError(f"sandbox {options.kind}: not kept on this machine: {broken}")
    return said if options.json else {"show": lambda: show_promises(said)}


def show_promises(said: dict[str, Any]) -> None:
    """Print the promises in a table."""
    from rich.table import Table
    from rich.text import Text

    from flows.console.look import result_console

    console = result_console()
    table = Table(title=f"Sandbox {said['kind']}")
    for heading in ("promise", "holds", "seen"):
        table.add_column(heading)
    for one in said["promises"]:
        table.add_row(one["promise"], Text("yes", style="green") if one["holds"] else Text("no", style="red"), one["seen"])
    console.print(table)
    console.print(said["version"], markup=False, soft_wrap=True)
