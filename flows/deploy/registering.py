"""What Prefect knows of a deployment: when it runs, with which parameters, and which champion it works on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from uuid import UUID

from flows.deploy.plan import Plan
from flows.deploy.turns import champion_key


def deployment_arguments(plan: Plan) -> dict[str, Any]:
    """What both a served deployment and one for a work pool have."""
    from prefect.types.entrypoint import EntrypointType

    return {
        "name": plan.name,
        "schedules": _schedules(plan),
        "parameters": parameters(plan),
        "description": _description(plan),
        "tags": ["tracewheel", champion_key(plan.config)],
        # One that ended in order has paused its schedules; without this they would stay so.
        "paused": False,
        "entrypoint_type": EntrypointType.MODULE_PATH,
    }


def parameters(plan: Plan) -> dict[str, Any]:
    """The flow's parameters of each run that nobody waits for."""
    options = plan.options
    # In a container the profile lies where the image has it, in relation to its folder.
    return {
        "profile": options.config if plan.in_container else str(Path(options.config).resolve()),
        "overrides": options.overrides,
        "run_dir": options.run_dir,
        "scheduled": True,
    }


def add_champion_limit(plan: Plan) -> None:
    """Let Prefect know the limit that runs on different machines share."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(champion_key(plan.config), 1)


def earlier_profile(plan: Plan) -> str | None:
    """The other profile that a deployment of this name runs at present; None when it is this one, or new."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            found = client.read_deployment_by_name(f"retrain/{plan.name}")
        except ObjectNotFound:
            return None
    earlier = found.parameters.get("profile")
    return earlier if earlier and earlier != parameters(plan)["profile"] else None


def make_runner(plan: Plan) -> tuple[Any, UUID]:
    """Prefect's runner with the deployment registered, and the deployment's id. `start` polls for runs."""
    from prefect.runner import Runner

    from flows.retrain import retrain

    add_champion_limit(plan)
    runner = Runner(name=plan.name, limit=1, pause_on_shutdown=True)
    return runner, cast(UUID, runner.add_flow(retrain, **deployment_arguments(plan)))


def _schedules(plan: Plan) -> list[Any]:
    from prefect.schedules import Cron, Interval

    if plan.options.cron is not None:
        return [Cron(plan.options.cron, timezone=plan.timezone)]
    if plan.options.interval is not None:
        return [Interval(plan.options.interval)]
    return []


def _description(plan: Plan) -> str:
    """Markdown for Prefect's page of the deployment."""
    config = plan.config
    return (
        f"Takes in what {', '.join(config.ingest.paths)} logged since the last run, trains an adapter for {config.policy.base} "
        f"and lets the gate decide whether it becomes champion of {config.tracking.model_name}.\n\n"
        f"Profile: {Path(plan.options.config).resolve()}. Records, reports and adapters: {Path(config.work_dir).resolve()}."
    )
