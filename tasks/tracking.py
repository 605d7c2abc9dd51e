"""MLflow: one MLflow run for each run of the pipeline, continued when the pipeline resumes."""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlparse

from tasks.inputs import NOT_IDENTITY
from tracewheel.config import RetrainConfig, TrackingConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import PARTIAL

# Read by MLflow when it is used. They bound what a server that stops answering can cost.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")

P = ParamSpec("P")
R = TypeVar("R")
PROBE_SECONDS = 5.0
RECORD_TAG, RUN_TAG = "tracewheel.record", "tracewheel.run_id"
ITERATION_METRIC = "rl/reward"
MOST_PARAMETERS = 100
LONGEST_DIGEST, LONGEST_TAG = 36, 5000


@dataclass(frozen=True)
class DataInput:
    """Data that a run reads, as MLflow shows it.

    Attributes:
        name: Name of the data set.
        context: Its purpose, such as "training".
        digest: Equal for equal data; MLflow keeps the first 36 characters.
        source: Where it lies.
        profile: Figures about it, JSON types; MLflow's pages show `num_rows`.
        schema: Its columns, as JSON text in MLflow's format.
    """

    name: str
    context: str
    digest: str
    source: Path
    profile: Mapping[str, Any]
    schema: str


def bounded(method: Callable[P, R]) -> Callable[P, R]:
    """Turn what MLflow raises into one clear error."""

    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        from mlflow.exceptions import MlflowException

        try:
            return method(*args, **kwargs)
        except MlflowException as error:
            raise InfrastructureError(f"MLflow: {str(error).splitlines()[0]}") from error

    return guarded


def check_tracking(uri: str) -> None:
    """Make sure that a tracking store can be used, in bounded time.

    Raises:
        InfrastructureError: the server does not answer.
    """
    if urlparse(uri).scheme not in ("http", "https"):
        return
    import httpx

    try:
        httpx.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS)  # any status: the first call finds out what it allows
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InfrastructureError(
            f"tracking.uri: no MLflow server answers at {uri} ({error}); start it, or use the default sqlite store"
        ) from error


def make_client(uri: str) -> Any:
    """An MLflow client for a store that has been checked; a sqlite store's folder is made."""
    check_tracking(uri)
    for name in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    import mlflow

    if database := sqlite_file(uri):
        _make_database(database)
    mlflow.set_tracking_uri(uri)
    return mlflow.MlflowClient(uri)


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


class Tracking:
    """The MLflow run of a pipeline run. Logging the same thing again after a resume adds nothing.

    What need not be there at once is logged beside the run's work, in a thread of its own (`later`). Whoever uses the client
    from another thread waits until that is done, so MLflow sees everything in its order.
    """

    def __init__(self, client: Any, settings: TrackingConfig, experiment_id: str, mlflow_run_id: str) -> None:
        self._client = client
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="mlflow", initializer=self._mark)
        self._beside_id: int | None = None
        self._pending: deque[Future[Any]] = deque()
        self.settings = settings
        self.experiment_id = experiment_id
        self.mlflow_run_id = mlflow_run_id
        self._logged = {metric.step for metric in client.get_metric_history(mlflow_run_id, ITERATION_METRIC)}

    @property
    def client(self) -> Any:
        """MLflow's client."""
        if threading.get_ident() != self._beside_id:
            self.settle()
        return self._client

    def later(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Log beside the run's work.

        Raises:
            InfrastructureError: something that was logged like this before has failed.
        """
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()
        self._pending.append(self._beside.submit(work, *args, **kwargs))

    def settle(self) -> None:
        """Wait for what is logged beside the run's work.

        Raises:
            InfrastructureError: it has failed.
        """
        while self._pending:
            self._pending.popleft().result()

    def _mark(self) -> None:
        self._beside_id = threading.get_ident()

    @classmethod
    @bounded
    def open(cls, config: RetrainConfig, record: RunRecord) -> Tracking:
        """The MLflow run of this record: the existing one, or a new one.

        Raises:
            InfrastructureError: the tracking store cannot be used.
        """
        client = make_client(config.tracking.uri)
        experiment_id = _experiment(client, config.tracking)
        place = str(record.path.resolve())
        found = client.search_runs([experiment_id], f"tags.`{RECORD_TAG}` = '{place}'", max_results=1)
        if found:
            run_id = found[0].info.run_id
            client.update_run(run_id, status="RUNNING")
        else:
            tags = {RECORD_TAG: place, RUN_TAG: record.run_id}
            run_id = client.create_run(experiment_id, tags=tags, run_name=f"{config.name}-{record.run_id}").info.run_id
        tracking = cls(client, config.tracking, experiment_id, run_id)
        tracking._log_parameters(config)
        return tracking

    @bounded
    def log_inputs(self, data: Iterable[DataInput]) -> None:
        """Log the data that the run learns from and is measured on, with digests, unless it is logged already."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for item in data:
            source, digest = json.dumps({"uri": str(item.source)}), item.digest[:LONGEST_DIGEST]
            dataset = Dataset(item.name, digest, "local", source, schema=item.schema, profile=json.dumps(item.profile))
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", item.context)]))
        self.client.log_inputs(self.mlflow_run_id, inputs)

    @bounded
    def log_iteration(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        """One iteration's metrics in one batch."""
        if iteration not in self._logged:
            self._log({f"rl/{name}": value for name, value in metrics.items()}, iteration)
            self._logged.add(iteration)

    @bounded
    def log_results(self, metrics: Mapping[str, float | None]) -> None:
        """The final figures in one batch."""
        self._log(metrics, 0)

    @bounded
    def log_files(self, paths: Iterable[Path], folder: str | None = None) -> None:
        """Files as artifacts; a folder's contents go under its name."""
        for path in paths:
            if path.is_dir():
                self.client.log_artifacts(self.mlflow_run_id, str(path), f"{folder}/{path.name}" if folder else path.name)
            else:
                self.client.log_artifact(self.mlflow_run_id, str(path), folder)

    @bounded
    def log_weights(self, name: str, weights: Path) -> None:
        """The folder of an adapter or of a whole model, under `adapters/<name>`."""
        self.client.log_artifacts(self.mlflow_run_id, str(weights), f"adapters/{name}")

    @bounded
    def tag(self, **tags: str) -> None:
        for name, value in tags.items():
            self.client.set_tag(self.mlflow_run_id, f"tracewheel.{name}", value[:LONGEST_TAG])

    @bounded
    def tagged(self, name: str) -> str | None:
        """The value of a tag that `tag` has set, None without."""
        value: str | None = self.client.get_run(self.mlflow_run_id).data.tags.get(f"tracewheel.{name}")
        return value

    @bounded
    def end(self, status: str) -> None:
        """Close the run as FINISHED, FAILED or KILLED."""
        self.client.set_terminated(self.mlflow_run_id, status)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close the run by how the block ends."""
        try:
            yield
            self.settle()
        except BaseException as error:
            self._beside.shutdown(cancel_futures=True)
            self._pending.clear()
            with contextlib.suppress(InfrastructureError):
                self.end("FAILED" if isinstance(error, Exception) else "KILLED")
            raise
        self.end("FINISHED")
        self._beside.shutdown()

    def _log_parameters(self, config: RetrainConfig) -> None:
        from mlflow.entities import Param

        values = {key: value for key, value in config.model_dump(mode="json").items() if key not in NOT_IDENTITY}
        parameters = [Param(key, str(value)) for key, value in _flatten(values)]
        for start in range(0, len(parameters), MOST_PARAMETERS):
            self.client.log_batch(self.mlflow_run_id, params=parameters[start : start + MOST_PARAMETERS])

    def _log(self, metrics: Mapping[str, float | None], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        known = [Metric(name, float(value), now, step) for name, value in metrics.items() if value is not None]
        self.client.log_batch(self.mlflow_run_id, metrics=known)


def _experiment(client: Any, settings: TrackingConfig) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(settings.experiment)
    if found is None:
        database = sqlite_file(settings.uri)
        location = (database.resolve().parent / "artifacts").as_uri() if database else None
        try:
            return str(client.create_experiment(settings.experiment, artifact_location=location))
        except MlflowException:
            found = client.get_experiment_by_name(settings.experiment)  # another process was first
            if found is None:
                raise
    return str(found.experiment_id)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
