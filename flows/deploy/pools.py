"""Deployments whose runs a work pool's workers start: as processes, in Docker or in Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from uuid import UUID

from flows.deploy.plan import PROCESS_POOL, Plan
from flows.deploy.registering import add_champion_limit, deployment_arguments
from tracewheel.core.errors import ConfigError


def check_pool(name: str, image: str | None) -> str:
    """Check that the server has the pool, and that its runs have an image where they need one.

    Returns:
        The pool's type.

    Raises:
        ConfigError: it does not, or they have none.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            pool = client.read_work_pool(name)
        except ObjectNotFound as error:
            known = ", ".join(found.name for found in client.read_work_pools()) or "none"
            hint = f"make it with `prefect work-pool create {name} --type process` (or docker, kubernetes)"
            raise ConfigError(f"--pool {name}: the server has no such work pool (it has {known}); {hint}") from error
    variables = pool.base_job_template.get("variables", {}).get("properties", {})
    if "image" in variables and not (image or variables["image"].get("default")):
        hint = "build one with `docker build -t tracewheel .` where this command's Dockerfile is"
        raise ConfigError(f"--image: the pool {name} is of type {pool.type}, whose runs need the image of Tracewheel; {hint}")
    if image and "image" not in variables:
        raise ConfigError(f"--image: the pool {name} is of type {pool.type}, whose runs have no image; leave it out")
    return str(pool.type)


def job_variables(image: str | None, given: list[str], kind: str) -> dict[str, Any]:
    """What a run's job has besides the pool's defaults, of `name=value` settings; a value is YAML.

    Raises:
        ConfigError: a setting is none.
    """
    import yaml

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


def register_for_pool(plan: Plan) -> UUID:
    """Register the deployment for the pool; returns its id.

    Raises:
        ConfigError: the pool refuses a job variable.
    """
    from prefect.deployments.runner import DeploymentApplyError
    from prefect.exceptions import PrefectHTTPStatusError

    from flows.retrain import retrain

    add_champion_limit(plan)
    options = plan.options
    variables = job_variables(options.image, options.job_variables, plan.pool_type)
    arguments = deployment_arguments(plan)
    deployment: Any = retrain.to_deployment(**arguments, work_pool_name=options.pool, job_variables=variables)
    try:
        return cast(UUID, deployment.apply())
    except (DeploymentApplyError, PrefectHTTPStatusError) as error:
        raise ConfigError(f"--pool {options.pool}: it refuses the job variables: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    detail = response.json().get("detail") if response is not None else str(error)
    return " ".join(str(detail).split())
