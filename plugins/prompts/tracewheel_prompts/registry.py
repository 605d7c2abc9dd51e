"""MLflow's prompt registry: each prompt is a version; the alias `champion` is that of the champion's run.

Of prompts of the command, which no run has trained under, it is the last that the gate promoted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, InfrastructureError, parse_json
from tracewheel_prompts.prompt import Prompt

if TYPE_CHECKING:
    from tracewheel import RetrainConfig

CHAMPION = "champion"


def register(config: RetrainConfig, report: Mapping[str, Any], run_id: str = "") -> str:
    """Register a report's prompt; returns `NAME/VERSION`. One that is there already, of a run or as the newest, gets no other.

    Args:
        config: The profile.
        report: With `prompt`, `before`, `policy`, `stopped` and `gate`.
        run_id: The run whose challenger has it; "" of the command.

    Raises:
        InfrastructureError: MLflow does not answer.
    """
    _patience()
    from mlflow.exceptions import MlflowException

    import mlflow

    name = _name(config)
    prompt = {key: value for key, value in report["prompt"].items() if key != "digest"}
    tags = {"digest": report["prompt"]["digest"], "before": report["before"]["digest"], "policy": report["policy"]}
    promoted = bool(report["gate"]) and report["gate"]["verdict"] == "promoted"
    tags |= {"run_id": run_id} if run_id else {}
    tags["verdict"] = report["gate"]["verdict"] if report["gate"] else "not judged"
    try:
        mlflow.set_tracking_uri(config.tracking.uri)
        known = _of_run(name, run_id) if run_id else mlflow.genai.load_prompt(f"prompts:/{name}@latest", allow_missing=True)
        if known is None or any(known.tags.get(key) != tags.get(key) for key in ("digest", "run_id")):
            text = json.dumps(prompt, ensure_ascii=False, indent=2)
            known = mlflow.genai.register_prompt(name=name, template=text, commit_message=report["stopped"], tags=tags)
        if promoted and not run_id:
            mlflow.genai.set_prompt_alias(name, CHAMPION, known.version)
    except (MlflowException, OSError) as error:
        raise InfrastructureError(f"tracking.uri {config.tracking.uri}: the prompt is not registered: {error}") from error
    return f"{name}/{known.version}"


def prompt_of_run(config: RetrainConfig, run_id: str) -> Prompt | None:
    """The prompt that a run has registered; None where it registered none.

    Raises:
        DataError: it is not the prompt that was registered.
        InfrastructureError: MLflow does not answer.
    """
    _patience()
    from mlflow.exceptions import MlflowException

    import mlflow

    name = _name(config)
    try:
        mlflow.set_tracking_uri(config.tracking.uri)
        known = _of_run(name, run_id)
        return known and Prompt.from_record({**parse_json(known.template), "digest": known.tags.get("digest")})
    except ValueError as error:
        raise DataError(
            f"tracking.uri {config.tracking.uri}: {name} of run {run_id} is not what the gate judged: {error}"
        ) from error
    except (MlflowException, OSError) as error:
        raise InfrastructureError(
            f"tracking.uri {config.tracking.uri}: the prompt of the champion's run {run_id} is not known: {error}; start MLflow"
        ) from error


def follow(config: RetrainConfig, run_id: str) -> None:
    """Move the alias to the prompt of the champion's run; without one, take it from a prompt of another run.

    Raises:
        InfrastructureError: MLflow does not answer.
    """
    _patience()
    from mlflow.exceptions import MlflowException

    import mlflow

    name = _name(config)
    try:
        mlflow.set_tracking_uri(config.tracking.uri)
        held = mlflow.genai.load_prompt(f"prompts:/{name}@{CHAMPION}", allow_missing=True)
        if held is not None and held.tags.get("run_id") == run_id:
            return
        if run_id and (known := _of_run(name, run_id)):
            mlflow.genai.set_prompt_alias(name, CHAMPION, known.version)
        elif held is not None and "run_id" in held.tags:
            mlflow.genai.delete_prompt_alias(name, CHAMPION)
    except (MlflowException, OSError) as error:
        raise InfrastructureError(f"tracking.uri {config.tracking.uri}: {name}@{CHAMPION} stays: {error}") from error


def _of_run(name: str, run_id: str) -> Any:
    """The newest version that a run has registered; None without one."""
    import mlflow

    newest = mlflow.genai.load_prompt(f"prompts:/{name}@latest", allow_missing=True)
    versions = (mlflow.genai.load_prompt(name, version=version) for version in range(newest.version if newest else 0, 0, -1))
    return next((known for known in versions if known.tags.get("run_id") == run_id), None)


def _name(config: RetrainConfig) -> str:
    return f"{config.tracking.model_name}-prompt"


def _patience() -> None:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
