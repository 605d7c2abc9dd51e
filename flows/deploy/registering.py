"""What Prefect knows of a deployment: when it runs, with which parameters, and which champion it works on."""

from __future__ import annotations

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
from tracewheel.core.errors import ConfigError


def deployment_arguments(plan: Plan) -> dict[str, Any]:
    """What both a served deployment and one for a work pool have."""
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


def _schedules(plan: Plan) -> list[Any]:
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


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    detail = response.json().get("detail") if response is not None else str(error)
    return " ".join(str(detail).split())
