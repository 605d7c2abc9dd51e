"""What waits for MLflow, delivered in order. Each record may be delivered again: MLflow then shows nothing twice.

A record has `kind`, `time` (of the event, milliseconds since 1970), `run` (`place`, `run_id`, `name` and `began` of the run
that it belongs to), `tracking` (where it goes) and what its kind needs. With `once`, it is left out where the MLflow run has
these tags. A kill between MLflow's answer and the deletion of the record delivers it a second time; runs are found by their
place, metrics by their step, traces by their id, model versions by run and content, and everything else replaces itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.tracking.champion import follow_registry
from tasks.tracking.client import forget_database, is_refusal, make_client, reason_of, sqlite_file
from tasks.tracking.moved_store import PLACE_TAG, location_of
from tasks.tracking.promotion import deliver_registration
from tasks.tracking.traces import EvaluationTags, log_traces
from tracewheel.config import TrackingConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold
from tracewheel.core.run_record import SUMMARY_FILE
from tracewheel.core.spool import Spool
from tracewheel.core.store import write_whole
from tracewheel.curation.curated_folder import load_tasks

RECORD_TAG, RUN_TAG = "tracewheel.record", "tracewheel.run_id"
ITERATION_METRIC = "rollout/reward"
NOTE_TAG = "mlflow.note.content"  # what a run's page shows as its description
MOST_PARAMETERS = 100
FILES = "files"
Say = Callable[[str], None]


@dataclass
class Target:
    """The MLflow run that a record goes to."""

    client: Any
    settings: TrackingConfig
    experiment_id: str
    mlflow_run_id: str

    @cached_property
    def steps(self) -> set[int]:
        """The iterations that MLflow has."""
        return {metric.step for metric in self.client.get_metric_history(self.mlflow_run_id, ITERATION_METRIC)}


@dataclass
class Delivered:
    """How a pass over the queue went.

    Attributes:
        count: Records delivered.
        waiting: Records that still wait.
        busy: Another process is delivering.
        away: Address of a store that does not answer to the reason.
        refused: Id of a run to why MLflow does not take its next record; those behind it wait.
    """

    count: int = 0
    waiting: int = 0
    busy: bool = False
    away: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why something waits, in a sentence."""
        if self.busy:
            return "another process is delivering"
        return "; ".join([*self.away.values(), *(f"run {run}: {why}" for run, why in self.refused.items())])


class Delivery:
    """Delivers the records of a work folder.

    Args:
        work_dir: The folder.
        say: Told what a person should know.
    """

    def __init__(self, work_dir: str | Path, say: Say) -> None:
        self.spool = Spool.of(work_dir)
        self._work_dir = Path(work_dir)
        self._say = say
        self._clients: dict[str, Any] = {}
        self._files: dict[str, tuple[int, int] | None] = {}
        self._targets: dict[tuple[str, str], Target] = {}

    def deliver(self) -> Delivered:
        """Deliver what waits, the oldest first. What fails keeps what is behind it of the same store, or run, waiting."""
        done = Delivered()
        with hold(self.spool.lock) as held:
            if not held:
                done.busy, done.waiting = True, len(self.spool.waiting())
                return done
            self.spool.tidy()
            tried: set[Path] = set()
            while fresh := [folder for folder in self.spool.waiting() if folder not in tried]:
                for folder in fresh:
                    tried.add(folder)
                    self._try(folder, done)
            done.waiting = len(self.spool.waiting())
        return done

    def client(self, uri: str) -> Any:
        """The client of a store; a new one when a sqlite file was deleted or replaced."""
        file = sqlite_file(uri)
        if file and uri in self._clients and _identity(file) != self._files[uri]:
            forget_database(uri)
            del self._clients[uri]
            self._targets.clear()
            self._say(f"{file} was deleted or replaced: what it held is gone; what follows goes into a new one")
        if uri not in self._clients:
            self._clients[uri] = make_client(uri)
            self._files[uri] = _identity(file) if file else None
        return self._clients[uri]

    def target(self, record: Mapping[str, Any]) -> Target:
        """The MLflow run of a record: the existing one, or a new one."""
        settings, run = TrackingConfig(**record["tracking"]), record["run"]
        client = self.client(settings.uri)
        name = (settings.uri, run["place"])
        if name not in self._targets:
            experiment_id = _experiment(client, settings)
            found = client.search_runs([experiment_id], f"tags.`{RECORD_TAG}` = '{run['place']}'", max_results=1)
            if found:
                mlflow_run_id = found[0].info.run_id
            else:
                tags = {RECORD_TAG: run["place"], RUN_TAG: run["run_id"]}
                made = client.create_run(experiment_id, start_time=run["began"], tags=tags, run_name=run["name"])
                mlflow_run_id = made.info.run_id
            self._targets[name] = Target(client, settings, experiment_id, mlflow_run_id)
            self._note(run["run_id"], "mlflow_run", mlflow_run_id)
        return self._targets[name]

    def _try(self, folder: Path, done: Delivered) -> None:
        try:
            record = self.spool.read(folder)
        except DataError as error:
            self._say(f"{error}; it is kept as {self.spool.set_aside(folder)}")
            return
        uri, run_id = record["tracking"]["uri"], record["run"]["run_id"]
        if uri in done.away or run_id in done.refused:
            return
        try:
            try:
                self._one(record, folder)
            except Exception as error:
                if not is_refusal(error):
                    raise
                # The run may have been deleted since it was looked up.
                self._targets.pop((uri, record["run"]["place"]), None)
                self._one(record, folder)
        except Exception as error:  # whatever it is, it must not end the training that it tells of
            if is_refusal(error):
                done.refused[run_id] = f"{record['kind']}: {reason_of(error)}"
            else:
                done.away[uri] = reason_of(error)
            return
        self.spool.done(folder)
        done.count += 1

    def _one(self, record: dict[str, Any], folder: Path) -> None:
        target = self.target(record)
        once = record.get("once")
        if once and once.items() <= target.client.get_run(target.mlflow_run_id).data.tags.items():
            return
        if record["kind"] == "register":
            version = deliver_registration(target, record, folder, self._say)
            follow_registry(self._work_dir, target.client, target.settings.model_name, record["tags"])
            self._note(record["run"]["run_id"], "model_version", version)
        else:
            KINDS[record["kind"]](target, record, folder)
            if record["kind"] == "end":
                self._note(record["run"]["run_id"], "mlflow_waiting", 0)

    def _note(self, run_id: str, name: str, value: str | int) -> None:
        """Put what only MLflow knows into the summary of a run that has ended without it."""
        path = self._work_dir / run_id / SUMMARY_FILE
        with contextlib.suppress(DataError):
            summary = read_json(path) if path.is_file() else {}
            if name in summary and summary[name] != value:
                write_whole(path, json.dumps({**summary, name: value}, indent=2) + "\n")


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _experiment(client: Any, settings: TrackingConfig) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(settings.experiment)
    if found is None:
        database = sqlite_file(settings.uri)
        location = location_of(database) if database else None
        try:
            tags = {PLACE_TAG: location} if location else None
            return str(client.create_experiment(settings.experiment, artifact_location=location, tags=tags))
        except MlflowException:
            found = client.get_experiment_by_name(settings.experiment)  # another process was first
            if found is None:
                raise
    return str(found.experiment_id)


def _begin(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    from mlflow.entities import Param

    target.client.update_run(target.mlflow_run_id, status="RUNNING")
    parameters = [Param(key, value) for key, value in record["parameters"].items()]
    for start in range(0, len(parameters), MOST_PARAMETERS):
        target.client.log_batch(target.mlflow_run_id, params=parameters[start : start + MOST_PARAMETERS])


def _inputs(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    inputs = []
    for item in record["data"]:
        dataset = Dataset(item["name"], item["digest"], "local", item["source"], schema=item["schema"], profile=item["profile"])
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", item["context"])]))
    target.client.log_inputs(target.mlflow_run_id, inputs)


def _iteration(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    if record["step"] in target.steps:
        return
    _log(target, record["metrics"], record["time"], record["step"])
    target.steps.add(record["step"])


def _results(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    known = target.client.get_run(target.mlflow_run_id).data.metrics
    _log(target, {name: value for name, value in record["metrics"].items() if known.get(name) != value}, record["time"], 0)


def _log(target: Target, metrics: Mapping[str, float], time: int, step: int) -> None:
    from mlflow.entities import Metric

    values = [Metric(name, value, time, step) for name, value in metrics.items()]
    target.client.log_batch(target.mlflow_run_id, metrics=values)


def _files(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    target.client.log_artifacts(target.mlflow_run_id, str(folder / FILES), record["folder"])


def _curve(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    for step, metrics in record["points"].items():
        new = {name: value for name, value in metrics.items() if int(step) not in _steps(target, name)}
        if new:
            _log(target, new, record["time"], int(step))


def _steps(target: Target, name: str) -> set[int]:
    return {metric.step for metric in target.client.get_metric_history(target.mlflow_run_id, name)}


def _describe(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    target.client.set_tag(target.mlflow_run_id, NOTE_TAG, record["note"])
    client, name = target.client, target.settings.model_name
    for version in client.search_model_versions(f"name = '{name}'"):
        if record["version"].items() <= version.tags.items():
            client.update_model_version(name, version.version, description=record["note"])
            for key, value in record["tags"].items():
                client.set_model_version_tag(name, version.version, key, value)


def _traces(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    evaluated = EvaluationTags(**record["evaluated"])
    tasks = load_tasks(folder / FILES, evaluated.split)
    log_traces(target, folder / FILES, tasks, record["wanted"], evaluated, at=record["time"])


def _tags(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    for name, value in record["tags"].items():
        target.client.set_tag(target.mlflow_run_id, name, value)


def _end(target: Target, record: Mapping[str, Any], folder: Path) -> None:
    target.client.set_terminated(target.mlflow_run_id, record["status"], end_time=record["time"])


KINDS: dict[str, Callable[[Target, Mapping[str, Any], Path], None]] = {
    "begin": _begin,
    "inputs": _inputs,
    "iteration": _iteration,
    "results": _results,
    "files": _files,
    "curve": _curve,
    "describe": _describe,
    "traces": _traces,
    "tags": _tags,
    "end": _end,
}
