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
from flows.deploy.options import add_deploy_options

if TYPE_CHECKING:
    from flows.deploy.plan import Plan

# All are promised to be gone 30 s after a signal; the server needs a moment then.
LAST_SECONDS = 28.0


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    add_deploy_options(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Serve the flow until interrupted, or register it for a work pool. A tick that finds no new traces ends as «Skipped».

    Without PREFECT_API_URL a Prefect server is started as well, which scheduling needs.
    """
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    plan = checked(options)
    from flows.deploy.registering import earlier_profile
    from flows.deploy.server import LocalServer
    from tracewheel.core.stopping import stoppable

    with (
        stoppable(grace=0, last=LAST_SECONDS),
        LocalServer(Path(plan.config.work_dir), scheduling=True, port=plan.port) as server,
    ):
        server.wait()
        say_where()
        if earlier := earlier_profile(plan):
            note(f"retrain/{plan.name} ran {earlier} until now; a profile of another `name` would be a deployment of its own")
        mend_flow_runs(plan)
        if options.pool:
            hand_over(plan)
        else:
            serve(plan)
    return {"deployment": f"retrain/{plan.name}", "pool": options.pool}


def checked(options: argparse.Namespace) -> Plan:
    """Check everything before anything is started.

    Raises:
        InputError: an option or a setting is wrong.
        InfrastructureError: the work folder or the server cannot be used.
    """
    from flows.deploy.checks import (
        check_notify,
        check_place,
        check_profile,
        check_server,
        check_triggers,
        check_when,
        timezone_of,
        user_server,
    )
    from flows.deploy.plan import Plan
    from flows.deploy.server import choose_port
    from flows.setup import prepare_environment, resolve_config

    config = resolve_config(options.config, options.overrides, options.run_dir)
    if not options.pool:  # a pool's workers have the logs and the base
        check_profile(config, empty=bool(options.on_new_traces))
    prepare_environment(config.work_dir, debug=options.debug)
    check_when(options)
    check_triggers(options, config)
    check_notify(config)
    timezone = timezone_of(options, config)
    check_place(options)
    port, pool_type = None, ""
    if address := user_server():
        check_server(address)
    else:
        source = "--port" if options.port is not None else "schedule.port"
        wanted = options.port if options.port is not None else config.schedule.port
        port = choose_port(Path(config.work_dir), wanted, source)
    if options.pool:
        from flows.deploy.pools import check_pool

        pool_type = check_pool(options.pool, options.image)
    return Plan(options, config, timezone, port, pool_type)


def mend_flow_runs(plan: Plan) -> None:
    """Say which runs the server took for running although a kill had ended them; they are Crashed now."""
    from flows.deploy.ends import mend

    if mended := mend(plan.config):
        note(f"{len(mended)} runs had been killed and still counted as running; they are Crashed now")


def serve(plan: Plan) -> None:
    """Register the deployment and serve it until interrupted, one run at a time."""
    from flows.deploy.notifying import register_notifications
    from flows.deploy.registering import make_runner
    from flows.deploy.serving import serve as serve_runner
    from flows.deploy.triggers import watching

    runner, deployment_id = make_runner(plan)
    register_notifications(plan, deployment_id)
    note(f"serving retrain/{plan.name}; `prefect deployment run 'retrain/{plan.name}'` starts a run at once")
    with watching(plan, deployment_id):
        serve_runner(runner, deployment_id, plan.config)


def hand_over(plan: Plan) -> None:
    """Register the deployment for a work pool; stay only to watch for what starts runs."""
    from flows.deploy.notifying import register_notifications
    from flows.deploy.pools import register_for_pool
    from flows.deploy.triggers import has_triggers, watching

    deployment_id = register_for_pool(plan)
    register_notifications(plan, deployment_id)
    pool = plan.options.pool
    note(f"registered retrain/{plan.name}; `prefect worker start --pool {pool}` starts its runs")
    if has_triggers(plan):
        note("watching for what starts runs, until interrupted")
        with watching(plan, deployment_id):
            threading.Event().wait()


def say_where() -> None:
    """Say where the server is, and its pages."""
    from flows.deploy.checks import without_password

    address = without_password(os.environ["PREFECT_API_URL"].rstrip("/"))
    note(f"Prefect server: {address}")
    note(f"pages: {address.removesuffix('/api')}")


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    return Card(f"Deployment {result['deployment']} ended", next=[f"tracewheel runs status {profile_words(options)}"])


COMMAND = Command("deploy", "serve the retrain flow on a schedule", add_options, run, card)
