"""A client for an MLflow store, in bounded time, and what its errors mean."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tracewheel.config import TrackingConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.store import PARTIAL

# Read by MLflow when it is used. They bound what a server that stops answering can cost. MLflow would repeat every request,
# also one that creates something and whose answer alone was lost: what is repeated is decided after a look at what is there.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

PROBE_SECONDS, BUSY_SECONDS = 5.0, 10.0
PLACE_TAG = "tracewheel.artifacts"  # of an experiment: its artifacts lie beside the store
_opened: dict[str, tuple[int, int]] = {}  # address of a sqlite store to the file that MLflow has open
# What a store answers where trying again does not help: a person has to change something.
REFUSALS = {
    "BAD_REQUEST",
    "CUSTOMER_UNAUTHORIZED",
    "ENDPOINT_NOT_FOUND",
    "FEATURE_DISABLED",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "MALFORMED_REQUEST",
    "NOT_FOUND",
    "NOT_IMPLEMENTED",
    "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
    "UNAUTHENTICATED",
}


@dataclass(frozen=True)
class Target:
    """The MLflow run of a folder."""

    client: Any
    settings: TrackingConfig
    experiment_id: str
    mlflow_run_id: str

    def log(self, metrics: Mapping[str, float], step: int, at: int) -> None:
        from mlflow.entities import Metric

        self.client.log_batch(self.mlflow_run_id, metrics=[Metric(name, value, at, step) for name, value in metrics.items()])


class MlflowAway(InfrastructureError):
    """The tracking store does not answer, or cannot be written to at present."""


def reason_of(error: Exception) -> str:
    """What went wrong, in a line."""
    said = str(error).strip().splitlines() or [""]
    return f"{said[0]:.300}" if said[0] else type(error).__name__


def is_refusal(error: Exception) -> bool:
    """Whether the store answered, and will not take it later either."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, MlflowException):
        # MLflow calls a database that it cannot read a bad request.
        return error.error_code in REFUSALS and not isinstance(error.__cause__, SQLAlchemyError)
    return not isinstance(error, OSError | SQLAlchemyError | MlflowAway)


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what MLflow raises into one clear error."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        kind = InfrastructureError if is_refusal(error) else MlflowAway
        raise kind(f"MLflow: {reason_of(error)}") from error


bounded = clear_errors()  # as a decorator


def check_tracking(uri: str) -> None:
    """Make sure that a tracking store can be used, in bounded time.

    Raises:
        MlflowAway: the server does not answer.
    """
    if urlparse(uri).scheme not in ("http", "https"):
        return
    import httpx

    try:
        httpx.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS)  # any status: the first call finds out what it allows
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise MlflowAway(
            f"tracking.uri: no MLflow server answers at {uri} ({error}); start it, or use the default sqlite store"
        ) from error


def make_client(uri: str) -> Any:
    """An MLflow client for a store that has been checked; a sqlite store is made where there is none.

    Runs and model versions lie in one store: with another project's `MLFLOW_REGISTRY_URI` in the environment, a run in a store
    of its own, made again or replayed, would otherwise register there, and move that project's champion.

    Raises:
        MlflowAway: no server answers.
    """
    check_tracking(uri)
    for name in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what fails is raised, too
    import mlflow

    if database := sqlite_file(uri):
        _make_database(database)
        _check_database(database)
        _notice(uri, database)
    mlflow.set_tracking_uri(uri)
    return mlflow.MlflowClient(uri, registry_uri=uri if database or urlparse(uri).scheme in ("http", "https") else None)


def _check_database(database: Path) -> None:
    """Make sure that a sqlite file can be read: MLflow tries for minutes.

    Raises:
        MlflowAway: it is locked, damaged or no database.
    """
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=BUSY_SECONDS)) as store:
            store.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise MlflowAway(f"{database}: {error}") from error


def _notice(uri: str, database: Path) -> None:
    """Have MLflow open a sqlite file anew that was deleted or replaced: it would go on with the old one, which nobody reads."""
    state = database.stat()
    identity = state.st_dev, state.st_ino
    if _opened.setdefault(uri, identity) == identity:
        return
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as Tracking
    from mlflow.tracking._model_registry.utils import _get_store_registry
    from mlflow.tracking._tracking_service.utils import _tracking_store_registry

    for store in (Registry, Tracking):
        with store._engine_map_lock:
            engine = store._engine_map.pop(uri, None)
        if engine is not None:
            engine.dispose()
    _tracking_store_registry._get_store_with_resolved_uri.cache_clear()
    _get_store_registry()._get_store_with_resolved_uri.cache_clear()
    _opened[uri] = identity


def _make_database(database: Path) -> None:
    """Have MLflow make its tables under another name: it cannot resume when a kill comes between them."""
    import mlflow

    if database.exists():
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    # On a disk without locks this continues unlocked and relies on MLflow's own.
    with hold(database.parent, wait=True):
        if database.exists():
            return  # another process was first
        partial = database.with_name(f"{PARTIAL}{database.name}")
        for leftover in database.parent.glob(f"{glob.escape(partial.name)}*"):
            leftover.unlink()
        mlflow.MlflowClient(f"sqlite:///{partial}").search_experiments(max_results=1)
        os.replace(partial, database)


def sqlite_file(uri: str) -> Path | None:
    """The database file of a sqlite store, None for a server."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def artifacts_of(database: Path) -> str:
    """Where the artifacts of a sqlite store lie: beside it."""
    return (database.resolve().parent / "artifacts").as_uri()


def moved_from(experiment: Any, uri: str) -> str | None:
    """Where an experiment's artifacts lay before its sqlite store was moved with them; None of a store in its place.

    MLflow keeps absolute addresses and has no call that changes them. What lay beside the store is tagged (`PLACE_TAG`).
    """
    database, place = sqlite_file(uri), experiment.tags.get(PLACE_TAG)
    return place if database and place and place != artifacts_of(database) else None


def address_now(client: Any, run_id: str | None, address: str) -> str:
    """Where an artifact of a run lies now, also in a sqlite store that was moved."""
    uri = client.tracking_uri
    old = moved_from(client.get_experiment(client.get_run(run_id).info.experiment_id), uri) if run_id else None
    database = sqlite_file(uri)
    return address.replace(old, artifacts_of(database), 1) if old and database else address
