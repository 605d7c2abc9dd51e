"""What Prefect knows of a deployment: when it runs, with which parameters, which champion it works on, and when none came.

How runs end is told by the runs themselves (`tasks.records.telling`). That none comes must be told by another: the server, by
an automation that calls a webhook. Its address is a secret: Prefect keeps it encrypted in a block, and nothing here prints it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import yaml
from prefect.client.orchestration import get_client
from prefect.deployments.runner import DeploymentApplyError
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.runner import Runner
from prefect.schedules import Cron, Interval
from prefect.types.entrypoint import EntrypointType

from flows.deploy.checks import PROCESS_POOL, Plan
from flows.deploy.turns import champion_key
from flows.retrain import retrain
from tracewheel.config.operations import NotifyConfig
from tracewheel.core.errors import ConfigError


def deployment_arguments(plan: Plan) -> dict[str, Any]:
    """What both a served deployment and one for a work pool have."""
    options = plan.options
    cron = [Cron(options.cron, timezone=plan.timezone)] if options.cron is not None else []
    return {
        "name": plan.name,
        "schedules": [*cron, *([Interval(options.interval)] if options.interval is not None else [])],
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


def earlier_profile(plan: Plan) -> str | None:
    """The other profile that a deployment of this name runs at present; None when it is this one, or new."""
    with get_client(sync_client=True) as client:
        try:
            found = client.read_deployment_by_name(f"retrain/{plan.name}")
        except ObjectNotFound:
            return None
    earlier = found.parameters.get("profile")
    return earlier if earlier and earlier != parameters(plan)["profile"] else None


def register(plan: Plan) -> tuple[Runner | None, UUID]:
    """Register the deployment: for a pool, or with a runner, which serves it once it is started; and the deployment's id.

    Raises:
        ConfigError: the pool refuses a job variable.
    """
    # Between machines: runs of all deployments that work on this champion share it.
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(champion_key(plan.config), 1)
    options, arguments = plan.options, deployment_arguments(plan)
    if not options.pool:
        runner = Runner(name=plan.name, limit=1, pause_on_shutdown=True)
        return runner, cast(UUID, runner.add_flow(retrain, **arguments))
    variables = job_variables(options.image, options.job_variables, plan.pool_type)
    deployment: Any = retrain.to_deployment(**arguments, work_pool_name=options.pool, job_variables=variables)
    try:
        return None, cast(UUID, deployment.apply())
    except (DeploymentApplyError, PrefectHTTPStatusError) as error:
        raise ConfigError(f"--pool {options.pool}: it refuses the job variables: {_reason(error)}") from error


def job_variables(image: str | None, given: list[str], kind: str) -> dict[str, Any]:
    """What a run's job has besides the pool's defaults, of `name=value` settings; a value is YAML.

    Raises:
        ConfigError: a setting is none.
    """
    variables: dict[str, Any] = {"working_dir": str(Path.cwd())} if kind == PROCESS_POOL else {}
    if image:
        variables["image"] = image
    for setting in given:
        name, equals, value = setting.partition("=")
        try:
            if not (name and equals):
                raise ConfigError(f"--job-variable {setting}: give name=value, as in memory_limit=8Gi")
            variables[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--job-variable {name}: the value is not YAML") from error
    return variables


def _description(plan: Plan) -> str:
    """Markdown for Prefect's page of the deployment."""
    config = plan.config
    return (
        f"Takes in what {', '.join(config.ingest.paths)} logged since the last run, trains an adapter for {config.policy.base} "
        f"and lets the gate decide whether it becomes champion of {config.tracking.model_name}.\n\n"
        f"Profile: {Path(plan.options.config).resolve()}. Records, reports and adapters: {Path(config.work_dir).resolve()}."
    )


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    detail = response.json().get("detail") if response is not None else str(error)
    return " ".join(str(detail).split())


COMPLETE = tuple(f"prefect.flow-run.{name}" for name in ("Completed", "Promoted", "Refused", "AwaitingApproval"))
OVERDUE = """{
  "text": {{ "retrain/NAME: no run was complete for DAYS days" | tojson }},
  "deployment": {{ "NAME" | tojson }},
  "event": "overdue"
}"""


def register_notifications(plan: Plan, deployment_id: UUID) -> None:
    """Have the server watch for runs that do not come. What it watches already goes on: a restart of `deploy` is no run."""
    owner = f"tracewheel.deployment.{deployment_id}"  # what the deployment itself owns, Prefect deletes at each registration
    wanted = [
        _automation(plan.name, number, notify, deployment_id, owner)
        for number, notify in enumerate(plan.config.schedule.notify)
        if notify.overdue_days is not None
    ]
    with get_client(sync_client=True) as client:
        known = client.read_resource_related_automations(owner)
        if sorted(map(_watched, known)) == sorted(map(_watched, wanted)):
            return
        client.delete_resource_owned_automations(owner)
        for automation in wanted:
            client.create_automation(automation)


def _watched(automation: Any) -> str:
    """What an automation is, waits for and does, as far as a profile decides it."""
    return str([automation.name, automation.trigger.within, *(action.block_document_id for action in automation.actions)])


def _automation(name: str, number: int, notify: NotifyConfig, deployment_id: UUID, owner: str) -> Any:
    from prefect.blocks.fields import SecretDict
    from prefect.blocks.webhook import Webhook
    from prefect.events.actions import CallWebhook
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from pydantic import SecretStr

    days = notify.overdue_days or 0.0
    block = Webhook(url=SecretStr(notify.address()), headers=SecretDict({"Content-Type": "application/json"}))
    block_name = f"tracewheel-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{number}"
    trigger = EventTrigger(
        expect=set(COMPLETE),
        match_related={"prefect.resource.id": f"prefect.deployment.{deployment_id}", "prefect.resource.role": "deployment"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(days=days),
    )
    payload = OVERDUE.replace("NAME", name).replace("DAYS", f"{days:g}")
    return AutomationCore(
        name=f"tracewheel {name}: overdue ({number + 1})",
        description=f"Tells when no run was complete for {days:g} days.",
        tags=["tracewheel"],
        trigger=trigger,
        actions=[CallWebhook(block_document_id=cast(UUID, block.save(block_name, overwrite=True)), payload=payload)],
        owner_resource=owner,
    )
