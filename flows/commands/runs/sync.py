"""`tracewheel runs sync`: deliver to MLflow what runs could not log while it was away."""

from __future__ import annotations

import argparse
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import note, profile_of, profile_options
from tracewheel.core.errors import InfrastructureError


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Bring MLflow to what the folders of the work folder's runs say.

    Raises:
        InfrastructureError: a run still waits.
    """
    config = profile_of(options)
    from flows.wheel_stages import bring
    from tasks.tracking.tracking import deliver_waiting

    done = deliver_waiting(config.work_dir, note, every=True)
    if done.waiting:
        raise InfrastructureError(f"{len(done.waiting)} runs still wait for MLflow: {done.reason}")
    bring(config, note)
    return {"delivered": list(done.runs), "waiting": 0}


COMMAND = Command("runs sync", "bring MLflow to what the runs' folders say", profile_options, run)
