"""`tracewheel deploy`: the retrain flow on a schedule, through Prefect."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from flows.server import LocalServer
from flows.setup import prepare_environment, resolve_config


def deploy(options: argparse.Namespace) -> dict[str, Any]:
    """Serve the flow until interrupted. A tick that finds no new traces ends as «Skipped».

    Without PREFECT_API_URL a Prefect server is started as well, which scheduling needs.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    prepare_environment(config.work_dir, debug=options.debug)
    with LocalServer(Path(config.work_dir), scheduling=True) as server:
        server.wait()
        print(f"Prefect server: {os.environ['PREFECT_API_URL']}", file=sys.stderr)
        serve(options, config.name)
    return {"deployment": f"retrain/{config.name}"}


def serve(options: argparse.Namespace, name: str) -> None:
    """Register the deployment and run it on schedule, one run at a time."""
    from prefect.schedules import Cron, Interval
    from prefect.types.entrypoint import EntrypointType

    from flows.retrain import retrain

    schedule = Cron(options.cron) if options.cron else Interval(options.interval)
    retrain.serve(
        name=name,
        schedule=schedule,
        parameters={
            "profile": str(Path(options.config).resolve()),
            "overrides": options.overrides,
            "run_dir": options.run_dir,
            "only_new": True,
        },
        limit=1,
        entrypoint_type=EntrypointType.MODULE_PATH,
        print_starting_message=True,
    )
