"""`tracewheel deploy`: the retrain flow on a schedule, through Prefect."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command
from flows.console.arguments import note, profile_options, profile_words
from flows.console.look import Card

if TYPE_CHECKING:
    from flows.deploy.checks import Plan

# All are promised to be gone 30 s after a signal; the server needs a moment then.
LAST_SECONDS = 28.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """When runs start, and where they run. What the options name is checked by `flows.deploy.checks`."""
    profile_options(parser)
    when = parser.add_argument_group("when runs start", "at least one; a schedule and triggers may be combined")
    when.add_argument("--cron", metavar="CRON", help='as in "0 3 * * *": minute, hour, day of month, month, day of week')
    when.add_argument("--interval", type=float, metavar="SECONDS", help="every SECONDS seconds")
    when.add_argument(
        "--timezone", metavar="ZONE", help="of --cron, as in Europe/Berlin (default: schedule.timezone, else UTC)"
    )
    when.add_argument("--on-new-traces", metavar="DIR", help="when records have arrived in DIR since the last run")
    when.add_argument("--min-new", type=int, metavar="N", help="how many, for --on-new-traces (default 100)")
    when.add_argument("--on-drift", action="store_true", help="when success or the mix of tasks has drifted")
    where = parser.add_argument_group("where runs are served")
    where.add_argument(
        "--port",
        type=int,
        help="of the Prefect server that is started without PREFECT_API_URL (default: schedule.port, else 4200)",
    )
    where.add_argument("--pool", metavar="NAME", help="register for this work pool of the server instead of serving")
    where.add_argument("--image", help="of a Docker or Kubernetes pool's runs")
    where.add_argument(
        "--job-variable",
        dest="job_variables",
        action="append",
        default=[],
        metavar="name=value",
        help="of the pool's jobs, as in memory_limit=8Gi; more than once",
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Serve the flow until interrupted, or register it for a work pool. A tick that finds no new traces ends as «Skipped».

    Without PREFECT_API_URL a Prefect server is started as well, which scheduling needs.
    """
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    from flows.deploy.checks import checked, without_password
    from flows.deploy.server import LocalServer
    from tracewheel.core.stopping import stoppable

    plan = checked(options)
    with (
        stoppable(grace=0, last=LAST_SECONDS),
        LocalServer(Path(plan.config.work_dir), scheduling=True, port=plan.port) as server,
    ):
        server.wait()
        address = without_password(os.environ["PREFECT_API_URL"].rstrip("/"))
        note(f"Prefect server: {address}")
        note(f"pages: {address.removesuffix('/api')}")
        _deploy(plan)
    return {"deployment": f"retrain/{plan.name}", "pool": options.pool}


def _deploy(plan: Plan) -> None:
    """Register the deployment, and serve it, or watch for what starts its runs."""
    from flows.deploy.ends import mend
    from flows.deploy.registering import earlier_profile, register, register_notifications
    from flows.deploy.serving import serve
    from flows.deploy.triggers import has_triggers, watching

    pool = plan.options.pool
    if earlier := earlier_profile(plan):
        note(f"retrain/{plan.name} ran {earlier} until now; a profile of another `name` would be a deployment of its own")
    if mended := mend(plan.config):
        note(f"{len(mended)} runs had been killed and still counted as running; they are Crashed now")
    runner, deployment_id = register(plan)
    register_notifications(plan, deployment_id)
    if runner:
        note(f"serving retrain/{plan.name}; `prefect deployment run 'retrain/{plan.name}'` starts a run at once")
        with watching(plan, deployment_id):
            serve(runner, deployment_id, plan.config)
    note(f"registered retrain/{plan.name}; `prefect worker start --pool {pool}` starts its runs")
    if has_triggers(plan):
        note("watching for what starts runs, until interrupted")
        with watching(plan, deployment_id):
            threading.Event().wait()


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    return Card(f"Deployment {result['deployment']} ended", next=[f"tracewheel runs status {profile_words(options)}"])


COMMAND = Command("deploy", "serve the retrain flow on a schedule", add_options, run, card)
