"""The environment that libraries read at import, and a profile as a run sees it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tracewheel.config import RetrainConfig, TrackingConfig, load_config
from tracewheel.core.store import disk_errors
from tracewheel.core.threads import warn_if_spinning
from tracewheel.traces.sources import FOLDER, located

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_CLI_PROMPT": "false",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "GIT_PYTHON_REFRESH": "quiet",
}


def resolve_config(profile: str, overrides: list[str] | None = None, run_dir: str | None = None) -> RetrainConfig:
    """Read a profile. With `run_dir`, everything a run makes goes there; a source of logs becomes the folder of its files.

    That is the store, the records, and the MLflow store too unless the profile or an override names one:
    runs in different folders do not share a champion.

    Raises:
        ConfigError: the profile or an override is invalid.
    """
    config = load_config(profile, overrides)
    if run_dir is not None:
        tracking = config.tracking
        if "uri" not in tracking.model_fields_set:
            tracking = TrackingConfig(**{**tracking.model_dump(), "uri": f"sqlite:///{run_dir}/mlflow.db"})
        config = config.model_copy(update={"work_dir": run_dir, "tracking": tracking})
    paths = located(config.ingest.paths, Path(config.work_dir) / FOLDER)
    if paths == config.ingest.paths:
        return config
    return config.model_copy(update={"ingest": config.ingest.model_copy(update={"paths": paths})})


def prepare_environment(work_dir: str | None, *, debug: bool = False) -> None:
    """Set the variables that Prefect and other libraries read at import; the user's own are kept.

    Args:
        work_dir: Where Prefect keeps its own files, unless the user has a server or a home for it. None
            for commands that do without Prefect.
        debug: Show the libraries' logs.
    """
    values = dict(QUIET)
    values["PREFECT_LOGGING_LEVEL"] = "DEBUG" if debug else "CRITICAL"
    # With its server away, Prefect would print each event that it cannot send.
    values["PREFECT_LOGGING_INTERNAL_LEVEL"] = "DEBUG" if debug else "CRITICAL"
    if work_dir is not None and not {"PREFECT_API_URL", "PREFECT_HOME"} & set(os.environ):
        home = Path(work_dir).resolve() / ".prefect"
        with disk_errors(home):
            home.mkdir(parents=True, exist_ok=True)
        values["PREFECT_HOME"] = str(home)
        values["PREFECT_SERVER_MEMO_STORE_PATH"] = str(home / "memo_store.toml")
    for name, value in values.items():
        os.environ.setdefault(name, value)
    if not debug:
        # A filter, because the library sets its own level when it is imported; here it warns that there is no GPU.
        logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)


def use_threads(threads: int) -> None:
    """Fix torch's number of threads: it decides the order of sums, and so the last bits."""
    import torch

    warn_if_spinning(threads)
    torch.set_num_threads(threads)
