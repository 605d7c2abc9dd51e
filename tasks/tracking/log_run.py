"""`log_run`: bring MLflow to what a run's folder says. The folder is the truth, and calling it twice shows nothing twice.

`mlflow.json` in the folder remembers which parts were brought to which MLflow run, so that the next call brings only what has
changed. Without it everything is brought again, which changes nothing: runs are found by their folder, metrics by step and
time, traces by their ids, model versions by run and content, and everything else replaces itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tasks.engine.inputs import identity_of
from tasks.tracking import shown
from tasks.tracking.champion import follow_registry
from tasks.tracking.client import PLACE_TAG, Target, artifacts_of, is_refusal, make_client, moved_from, reason_of, sqlite_file
from tasks.tracking.datasets import inputs_of
from tasks.tracking.promotion import Registration, deliver_registration, registrations_of
from tasks.tracking.traces import EvaluationTags, log_traces
from tracewheel.config import TrackingConfig, load_stored_config
from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_file, digest_of
from tracewheel.core.locks import hold
from tracewheel.core.run_record import CONFIG_FILE, SUMMARY_FILE, RunRecord
from tracewheel.core.store import write_whole
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import VALIDATION, load_tasks
from tracewheel.policy.adapters import ADAPTER, MODEL
from tracewheel.report.finished_run import FinishedRun
from tracewheel.report.glossary import iteration_name

MARKER_FILE = "mlflow.json"
RECORD_TAG, RUN_TAG = "tracewheel.record", "tracewheel.run_id"
NOTE_TAG = "mlflow.note.content"  # what a run's page shows as its description
MOST_PARAMETERS = 100
PUT_ASIDE = " (was in "  # after the name of an experiment whose store was moved
FEWER_TRACES = 4  # of an evaluation on the validation split, which each iteration may have
Say = Callable[[str], None]


@dataclass(frozen=True)
class Logged:
    """How a call of `log_run` went.

    Attributes:
        mlflow_run: Id of the run in MLflow; None where it has none yet.
        brought: Parts that were brought now.
        reason: Why MLflow does not have all; "" where it does.
        refused: It answered, and does not take what the reason says.
    """

    mlflow_run: str | None = None
    brought: int = 0
    reason: str = ""
    refused: bool = False

    @property
    def waits(self) -> bool:
        """Whether MLflow does not have all of the run."""
        return bool(self.reason)


@dataclass(frozen=True)
class Part:
    """Something of a run that MLflow shows.

    Attributes:
        name: One of its kind in a run.
        digest: Of what the folder says; another one is brought again. None: it is brought at each call.
        bring: Brings it to MLflow.
    """

    name: str
    digest: str | None
    bring: Callable[[Target], None]


def log_run(
    folder: Path, settings: TrackingConfig | None = None, *, status: str | None = None, say: Say | None = None
) -> Logged:
    """Bring MLflow to what a run's folder says; an MLflow that is away or refuses is no error.

    Args:
        folder: The folder of the run's record.
        settings: Where it is logged; None for where it was logged before.
        status: The run's status in MLflow; None for what its folder says.
        say: Told what a person should know.
    """
    say, brought, reason, refused = say or (lambda text: None), 0, "", False
    with hold(folder, wait=True):
        marker = Marker.read(folder)
        marker = marker.of(settings or marker.settings or load_stored_config(folder).tracking)
        try:
            target, marker = _target(marker, folder)
            for part in _parts(folder, target.settings, status, say):
                if part.digest is None or marker.brought.get(part.name) != part.digest:
                    part.bring(target)
                    brought += 1
                    if part.digest is not None:
                        marker.brought[part.name] = part.digest
        except Exception as error:  # whatever it is, it must not end the training that it tells of
            reason, refused = reason_of(error), is_refusal(error)
        finally:
            replace(marker, waits=bool(reason)).write(folder)
        _note(folder, {"mlflow_run": marker.mlflow_run, "mlflow_waiting": bool(reason)})
    return Logged(marker.mlflow_run, brought, reason, refused)


@dataclass(frozen=True)
class Marker:
    """What `mlflow.json` remembers of a folder.

    Attributes:
        place: The folder; a copy of it is another run.
        mlflow_run: Id of the run in MLflow.
        brought: Part to the digest that was brought.
        waits: Whether MLflow did not have all of the run after the last call.
    """

    place: str
    settings: TrackingConfig | None = None
    mlflow_run: str | None = None
    brought: dict[str, str] = field(default_factory=dict)
    waits: bool = True

    @classmethod
    def read(cls, folder: Path) -> Marker:
        """What a folder's file says; nothing where it is missing, damaged, or was written in another place."""
        place = str(folder.resolve())
        with contextlib.suppress(DataError, KeyError, TypeError, ValueError):
            found = read_json(folder / MARKER_FILE)
            if found["place"] == place:
                settings = TrackingConfig(**found["tracking"])
                return cls(place, settings, found["mlflow_run"], dict(found["brought"]), bool(found["waits"]))
        return cls(place)

    def of(self, settings: TrackingConfig) -> Marker:
        """The same for these settings: what was brought elsewhere does not count."""
        old = self.settings
        if old and (old.uri, old.experiment) == (settings.uri, settings.experiment):
            return replace(self, settings=settings)
        return Marker(self.place, settings)

    def write(self, folder: Path) -> None:
        assert self.settings is not None
        kept = {"place": self.place, "mlflow_run": self.mlflow_run, "waits": self.waits}
        values = {**kept, "tracking": self.settings.model_dump(mode="json"), "brought": self.brought}
        write_whole(folder / MARKER_FILE, json.dumps(values, indent=2) + "\n")


def _target(marker: Marker, folder: Path) -> tuple[Target, Marker]:
    """The MLflow run of a folder: the one that is known, the one that is found by the folder, or a new one."""
    settings = marker.settings
    assert settings is not None
    client = make_client(settings.uri)
    experiment = _experiment(client, settings)
    if marker.mlflow_run and _is_there(client, marker.mlflow_run, experiment):
        return Target(client, settings, experiment, marker.mlflow_run), marker
    found = client.search_runs([experiment], f"tags.`{RECORD_TAG}` = '{marker.place}'", max_results=1)
    if found:
        run_id = found[0].info.run_id
    else:
        record = RunRecord(folder.parent, folder.name)
        tags = {RECORD_TAG: marker.place, RUN_TAG: record.run_id}
        name = f"{load_stored_config(folder).name}-{record.run_id}"
        run_id = client.create_run(experiment, start_time=_began(record), tags=tags, run_name=name).info.run_id
    return Target(client, settings, experiment, run_id), replace(marker, mlflow_run=run_id, brought={})


def _is_there(client: Any, run_id: str, experiment: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        info = client.get_run(run_id).info
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return info.lifecycle_stage == "active" and str(info.experiment_id) == experiment


def _began(record: RunRecord) -> int:
    with contextlib.suppress(DataError):
        return int(datetime.fromisoformat(str(record.lineage["started"])).timestamp() * 1000)
    return clock.milliseconds()


def _experiment(client: Any, settings: TrackingConfig) -> str:
    """The experiment. One whose store was moved keeps its old place, so it is put aside, and another takes its name."""
    from mlflow.exceptions import MlflowException

    found, name = client.get_experiment_by_name(settings.experiment), settings.experiment
    if found is not None and (old := moved_from(found, settings.uri)):
        client.rename_experiment(found.experiment_id, f"{name}{PUT_ASIDE}{old.removeprefix('file://')})")
        found = None
    if found is None:
        database = sqlite_file(settings.uri)
        location = artifacts_of(database) if database else None
        try:
            tags = {PLACE_TAG: location} if location else None
            return str(client.create_experiment(name, artifact_location=location, tags=tags))
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another process was first
            if found is None:
                raise
    return str(found.experiment_id)


def _parts(folder: Path, settings: TrackingConfig, status: str | None, say: Say) -> Iterator[Part]:
    """All that MLflow shows of a run, in the order in which it is brought."""
    record = RunRecord(folder.parent, folder.name)
    run = FinishedRun(record)
    ended = record.state.read().get("state")
    status = status or (shown.STATUSES.get(ended, "FINISHED") if ended else "FINISHED" if run.summary else None)
    if (folder / CONFIG_FILE).is_file():
        yield Part("parameters", digest_file(folder / CONFIG_FILE), lambda target: _parameters(target, run))
    if status == "RUNNING":
        yield Part("status", status, lambda target: target.client.update_run(target.mlflow_run_id, status=status))
    for registration in registrations_of(folder):
        if registration.version is None:
            yield Part("version", None, _registration(folder, registration, say))
    if curated := shown.entry_of(run, "curate"):
        yield Part("data", curated.digest, lambda target: target.client.log_inputs(target.mlflow_run_id, inputs_of(run)))
    for step, figures in record.figures.items():
        yield Part(f"iteration {step}", str(figures["at"]), _iteration(int(step), figures))
    if curve := shown.curve(run):
        yield Part("curve", content_hash(curve), lambda target: _curve(target, curve))
    if results := shown.results(run):
        yield Part("results", content_hash(results), lambda target: _results(target, results))
    if tags := shown.tags_of(run):
        yield Part("tags", content_hash(tags), lambda target: _tags(target, tags))
    for place, path in shown.artifacts_of(run):
        yield Part(f"file {place}/{path.name}", digest_file(path), _artifact(place, path))
    for name, entry, adapter in shown.adapters_of(run):
        yield Part(f"adapter {name}", entry, _adapter(name, adapter))
    for evaluated, policy, split in shown.evaluations_of(run):
        wanted = settings.traces_per_evaluation // (FEWER_TRACES if split == VALIDATION else 1)
        if wanted:
            by = EvaluationTags(policy, split, run.run_id)
            digest = content_hash([evaluated.name, policy, split, wanted])
            yield Part(f"traces {policy} {evaluated.name}", digest, _traces(run, evaluated.path, wanted, by))
    if run.summary:
        note, of_version = shown.note_of(run), shown.version_tags(run)
        versions = [registration.version for registration in registrations_of(folder)]
        digest = content_hash([note, of_version, versions])
        yield Part("note", digest, lambda target: _describe(target, run, note, of_version))
    if status and status != "RUNNING":
        yield Part("status", status, lambda target: target.client.set_terminated(target.mlflow_run_id, status, _ended(record)))


def _parameters(target: Target, run: FinishedRun) -> None:
    from mlflow.entities import Param

    found = [Param(name, str(value)) for name, value in _flatten(identity_of(run.config))]
    for start in range(0, len(found), MOST_PARAMETERS):
        target.client.log_batch(target.mlflow_run_id, params=found[start : start + MOST_PARAMETERS])


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _iteration(step: int, figures: Mapping[str, Any]) -> Callable[[Target], None]:
    metrics = {iteration_name(name): value for name, value in shown.known(figures["metrics"]).items()}
    return lambda target: target.log(metrics, step, figures["at"])


def _results(target: Target, metrics: Mapping[str, float]) -> None:
    there = target.client.get_run(target.mlflow_run_id).data.metrics
    target.log({name: value for name, value in metrics.items() if there.get(name) != value}, 0, clock.milliseconds())


def _curve(target: Target, points: Mapping[int, Mapping[str, float]]) -> None:
    names = {name for metrics in points.values() for name in metrics}
    history = {name: target.client.get_metric_history(target.mlflow_run_id, name) for name in names}
    steps = {name: {metric.step for metric in metrics} for name, metrics in history.items()}
    for step, metrics in points.items():
        target.log({name: value for name, value in metrics.items() if step not in steps[name]}, step, clock.milliseconds())


def _tags(target: Target, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    found = [RunTag(f"tracewheel.{name}", value) for name, value in tags.items()]
    target.client.log_batch(target.mlflow_run_id, tags=found)


def _artifact(place: str, path: Path) -> Callable[[Target], None]:
    return lambda target: target.client.log_artifact(target.mlflow_run_id, str(path), place or None)


def _adapter(name: str, folder: Path) -> Callable[[Target], None]:
    return lambda target: target.client.log_artifacts(target.mlflow_run_id, str(folder), f"adapters/{name}")


def _traces(run: FinishedRun, evaluation: Path, wanted: int, tags: EvaluationTags) -> Callable[[Target], None]:
    def bring(target: Target) -> None:
        log_traces(target, evaluation, load_tasks(run.curated, tags.split), wanted, tags, at=clock.milliseconds())

    return bring


def _registration(folder: Path, registration: Registration, say: Say) -> Callable[[Target], None]:
    def bring(target: Target) -> None:
        version = deliver_registration(target, registration, say)
        follow_registry(folder.parent, target.client, target.settings.model_name, registration.tags)
        registration.is_done(version)
        _note(folder, {"model_version": version})

    return bring


def _describe(target: Target, run: FinishedRun, note: str, tags: Mapping[str, str]) -> None:
    """The note on the page of the run and on those of its model versions, which get the tags."""
    client, name = target.client, target.settings.model_name
    client.set_tag(target.mlflow_run_id, NOTE_TAG, note)
    weights = next((folder for kind in (ADAPTER, MODEL) if (folder := run.record.path / kind).is_dir()), None)
    if weights is None:
        return
    ours = {"run_id": run.run_id, "adapter_digest": digest_of(weights)}
    for version in client.search_model_versions(f"name = '{name}'"):
        if ours.items() <= version.tags.items():
            client.update_model_version(name, version.version, description=note)
            for key, value in tags.items():
                client.set_model_version_tag(name, version.version, key, value)


def _ended(record: RunRecord) -> int:
    ended = record.state.read().get("ended")
    return int(datetime.fromisoformat(ended).timestamp() * 1000) if ended else clock.milliseconds()


def _note(folder: Path, values: Mapping[str, Any]) -> None:
    """Put what only MLflow knows into the summary of a run that is complete."""
    with contextlib.suppress(DataError):
        record = RunRecord(folder.parent, folder.name)
        if (summary := record.summary) is not None and not values.items() <= summary.items():
            record.write(SUMMARY_FILE, {**summary, **values})
