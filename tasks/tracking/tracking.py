"""MLflow: one MLflow run for each run of the pipeline, continued when the pipeline resumes.

Whatever is logged goes to a queue on disk first (`core.spool`), and from there to MLflow (`delivery.py`), beside the run's
work. While MLflow is away the queue grows and the run goes on; it is emptied when MLflow answers again, at the end of the run,
at the start of the next one, or by `tracewheel runs sync`.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.engine.inputs import identity_of
from tasks.tracking.client import MlflowAway, bounded
from tasks.tracking.delivery import FILES, Delivered, Delivery, Say, Target
from tasks.tracking.traces import EvaluationTags
from tracewheel.config import RetrainConfig, TrackingConfig
from tracewheel.core import clock
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.run_record import RunRecord
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.report.glossary import iteration_name
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import SCORES_FILE

LONGEST_DIGEST, LONGEST_TAG = 36, 5000
# Seconds before each attempt of who waits for MLflow, and of the thread that delivers while it is away (the last one repeats).
PAUSES = (0.0, 1.0, 2.0)
BUSY_SECONDS = 60.0
AWAY_PAUSES = (2.0, 5.0, 15.0, 60.0)


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


class Tracking:
    """The MLflow run of a pipeline run. Logging the same thing again after a resume adds nothing.

    Each call puts a record into the queue and returns. A thread delivers beside the run's work; who asks MLflow something waits
    until everything that was logged before is delivered (`settle`), so MLflow sees it all in its order.
    """

    def __init__(self, settings: TrackingConfig, run: Mapping[str, Any], delivery: Delivery, say: Say) -> None:
        self.settings = settings
        self._identity = dict(run)
        self._delivery = delivery
        self._say = say
        self._passing = threading.Lock()
        self._news = threading.Condition()
        self._unseen, self._closed = False, False
        self._thread: threading.Thread | None = None
        self._last = Delivered()

    @classmethod
    def open(cls, config: RetrainConfig, record: RunRecord, say: Say | None = None) -> Tracking:
        """The MLflow run of this record: the existing one, or a new one. While MLflow is away it waits to be made.

        Raises:
            InfrastructureError: the tracking store answers and refuses.
        """
        now = _now()
        run = {"place": str(record.path.resolve()), "run_id": record.run_id, "name": f"{config.name}-{record.run_id}"}
        tracking = cls(config.tracking, {**run, "began": now}, Delivery(Path(config.work_dir), say or _silent), say or _silent)
        parameters = {key: str(value) for key, value in _flatten(identity_of(config))}
        begin = tracking._put("begin", {"parameters": parameters})
        tracking.settle()
        if reason := tracking._last.refused.get(record.run_id):
            if begin.exists():
                tracking._delivery.spool.done(begin)
            raise InfrastructureError(f"MLflow: {reason}")
        return tracking

    @property
    def waiting(self) -> int:
        """The records of the work folder that wait."""
        return len(self._delivery.spool.waiting())

    @property
    def client(self) -> Any:
        """MLflow's client, after everything is delivered.

        Raises:
            MlflowAway: it does not answer, or something could not be delivered.
        """
        return self._settled().client

    @property
    def experiment_id(self) -> str:
        return self._settled().experiment_id

    @property
    def mlflow_run_id(self) -> str:
        return self._settled().mlflow_run_id

    @property
    def known_run_id(self) -> str | None:
        """The MLflow run's id, None while it waits to be made."""
        return self._settled().mlflow_run_id if self.settle() else None

    @bounded
    def _settled(self) -> Target:
        if not self.settle():
            raise MlflowAway(f"MLflow: {self._last.reason}")
        return self._delivery.target(self._record("none", {}))

    def settle(self) -> bool:
        """Deliver what waits, trying a few times; returns whether this run has nothing left that waits."""
        patience = time.monotonic() + BUSY_SECONDS
        for pause in PAUSES[:1] if self._last.away else PAUSES:
            time.sleep(pause)
            while self._ours():
                if not self._pass().busy or time.monotonic() > patience:
                    break
                time.sleep(0.1)  # another process delivers, ours with the rest
            if not self._last.away:
                break
        return not self._ours()

    def log_inputs(self, data: Iterable[DataInput]) -> None:
        """Log the data that the run learns from and is measured on, with digests."""
        inputs = [
            {
                "name": item.name,
                "context": item.context,
                "digest": item.digest[:LONGEST_DIGEST],
                "source": json.dumps({"uri": str(item.source)}),
                "schema": item.schema,
                "profile": json.dumps(item.profile),
            }
            for item in data
        ]
        self._put("inputs", {"data": inputs})

    def log_iteration(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        """One iteration's metrics in one batch, unless MLflow has them."""
        self._put(
            "iteration", {"step": iteration, "metrics": _known({iteration_name(name): metrics[name] for name in metrics})}
        )

    def log_curve(self, points: Mapping[int, Mapping[str, float | None]]) -> None:
        """Figures by step, unless MLflow has them."""
        self._put("curve", {"points": {str(step): _known(metrics) for step, metrics in points.items()}})

    def describe(self, note: str, version: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """A note in Markdown on the page of the run and on that of its model version.

        Args:
            version: Tags by which the version is found.
            tags: Tags that it gets.
        """
        short = {name: value[:LONGEST_TAG] for name, value in tags.items()}
        self._put("describe", {"note": note[:LONGEST_TAG], "version": dict(version), "tags": short})

    def log_results(self, metrics: Mapping[str, float | None], once: Mapping[str, str] | None = None) -> None:
        """Figures in one batch, unless the MLflow run has the tags `once`."""
        self._put("results", {"metrics": _known(metrics), "once": _tags(once or {})})

    def log_files(self, paths: Iterable[Path], folder: str | None = None, once: Mapping[str, str] | None = None) -> None:
        """Files as artifacts, unless the MLflow run has the tags `once`; a folder's contents go under its name."""
        files = {f"{FILES}/{path.name}": path for path in paths}
        if files:
            self._put("files", {"folder": folder, "once": _tags(once or {})}, files)

    def log_weights(self, name: str, weights: Path) -> None:
        """The folder of an adapter or of a whole model, under `adapters/<name>`."""
        self._put("files", {"folder": f"adapters/{name}"}, {FILES: weights})

    def log_evaluation(self, evaluation: Path, curated: Path, wanted: int, evaluated: EvaluationTags) -> None:
        """Some of an evaluation's trajectories with their scores, as traces; see `traces.log_traces`."""
        if not wanted:
            return
        greedy = {f"{FILES}/greedy/{name}": evaluation / "greedy" / name for name in (TRAJECTORIES_FILE, SCORES_FILE)}
        tags = {"policy": evaluated.policy, "split": evaluated.split, "run_id": evaluated.run_id}
        files = {**greedy, f"{FILES}/{TASKS_FILE}": curated / TASKS_FILE}
        self._put("traces", {"wanted": wanted, "evaluated": tags}, files)

    def tag(self, **tags: str) -> None:
        self._put("tags", {"tags": _tags(tags)})

    def register(self, weights: Path, values: Mapping[str, Any]) -> bool:
        """Register weights, and promote them where `values` says so; see `promotion`. Returns whether it is done already."""
        self._put("register", values, {f"{FILES}/{weights.name}": weights})
        return self.settle()

    def end(self, status: str) -> None:
        """Close the run as FINISHED, FAILED or KILLED."""
        self._put("end", {"status": status})

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close the run by how the block ends."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(InfrastructureError):
                self.end("FAILED" if isinstance(error, Exception) else "KILLED")
                self._close()
            raise
        self.end("FINISHED")
        self._close()

    def stop(self) -> None:
        """End the thread that delivers; what waits stays in the queue, and the MLflow run stays open."""
        with self._news:
            self._closed = True
            self._news.notify()
        if self._thread:
            self._thread.join()

    def _close(self) -> None:
        self.stop()
        self.settle()
        if waiting := self.waiting:
            self._say(f"{waits(waiting)} in {self._delivery.spool.root}: the next run delivers them, or `tracewheel runs sync`")

    def _put(self, kind: str, values: Mapping[str, Any], files: Mapping[str, Path] | None = None) -> Path:
        folder = self._delivery.spool.put(self._record(kind, values), files)
        with self._news:
            self._unseen = True
            if self._thread is None and not self._closed and kind != "begin":
                self._thread = threading.Thread(target=self._deliver, name="mlflow", daemon=True)
                self._thread.start()
            self._news.notify()
        return folder

    def _record(self, kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": kind,
            "time": _now(),
            "run": self._identity,
            "tracking": self.settings.model_dump(mode="json"),
            **values,
        }

    def _ours(self) -> bool:
        """Whether records of this run wait."""
        return any(self._is_ours(folder) for folder in self._delivery.spool.waiting())

    def _is_ours(self, folder: Path) -> bool:
        with contextlib.suppress(DataError, KeyError):
            return bool(self._delivery.spool.read(folder)["run"]["place"] == self._identity["place"])
        return False

    def _deliver(self) -> None:
        """The thread's work: deliver what is put, and while MLflow is away, try again from time to time."""
        failures = 0
        while True:
            with self._news:
                pause = AWAY_PAUSES[min(failures, len(AWAY_PAUSES)) - 1] if failures else None
                if failures:
                    self._news.wait_for(lambda: self._closed, pause)
                else:
                    self._news.wait_for(lambda: self._unseen or self._closed)
                if self._closed:
                    return
                self._unseen = False
            done = self._pass()
            failures = failures + 1 if done.away or done.refused or done.busy else 0

    def _pass(self) -> Delivered:
        with self._passing:
            before, self._last = self._last, self._delivery.deliver()
            if self._last.reason and not self._last.busy and self._last.reason != before.reason:
                self._say(
                    f"MLflow is away ({self._last.reason}): {waits(self._last.waiting)} in {self._delivery.spool.root}, "
                    "and the run goes on"
                )
            elif before.away and not self._last.away and not self._last.busy:
                self._say(f"MLflow answers again: {self._last.count} records delivered")
            return self._last


def waits(count: int) -> str:
    """As in "1 record waits"."""
    return f"{count} record{'s wait' if count != 1 else ' waits'} for MLflow"


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"tracewheel.{name}": value[:LONGEST_TAG] for name, value in tags.items()}


def _silent(text: str) -> None:
    return


def _now() -> int:
    return clock.milliseconds()


def _known(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if value is not None}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
