"""MLflow's prompt registry: each prompt is a version; the alias `champion` is that of the last that the gate promoted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracewheel import InfrastructureError

if TYPE_CHECKING:
    from tracewheel import RetrainConfig

CHAMPION = "champion"


def register(config: RetrainConfig, report: Mapping[str, Any]) -> str:
    """Register a report's prompt; returns `NAME/VERSION`. A prompt that is the newest version already gets no other.

    Raises:
        InfrastructureError: MLflow does not answer.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow.exceptions import MlflowException

    import mlflow

    name = f"{config.tracking.model_name}-prompt"
    prompt = {key: value for key, value in report["prompt"].items() if key != "digest"}
    tags = {"digest": report["prompt"]["digest"], "before": report["before"]["digest"], "policy": report["policy"]}
    promoted = bool(report["gate"]) and report["gate"]["verdict"] == "promoted"
    tags["verdict"] = report["gate"]["verdict"] if report["gate"] else "not judged"
    try:
        mlflow.set_tracking_uri(config.tracking.uri)
        known = mlflow.genai.load_prompt(f"prompts:/{name}@latest", allow_missing=True)
        if known is None or known.tags.get("digest") != tags["digest"]:
            text = json.dumps(prompt, ensure_ascii=False, indent=2)
            known = mlflow.genai.register_prompt(name=name, template=text, commit_message=report["stopped"], tags=tags)
        if promoted:
            mlflow.genai.set_prompt_alias(name, CHAMPION, known.version)
    except (MlflowException, OSError) as error:
        raise InfrastructureError(f"tracking.uri {config.tracking.uri}: the prompt is not registered: {error}") from error
    return f"{name}/{known.version}"
