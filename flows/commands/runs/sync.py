"""`tracewheel runs sync`: deliver to MLflow what runs could not log while it was away."""

from __future__ import annotations

import argparse
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import note, profile_of, profile_options
from tracewheel.core.errors import InfrastructureError


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Deliver what waits in the work folder, in order.

    Raises:
        InfrastructureError: something still waits.
    """
    config = profile_of(options)
    from tasks.tracking.sync import deliver_waiting

    done = deliver_waiting(config.work_dir, note, quick=False)
    if done.waiting:
        raise InfrastructureError(f"{done.count} records delivered, {done.waiting} still wait for MLflow: {done.reason}")
    return {"delivered": done.count, "waiting": 0}


COMMAND = Command("runs sync", "deliver to MLflow what waits since it was away", profile_options, run)
