"""When a run is logged to MLflow: as it begins, after each iteration, at its end, and later what it could not log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.tracking.client import MlflowAway, bounded, clear_errors, make_client, moved_from, sqlite_file
from tasks.tracking.log_run import MARKER_FILE, PUT_ASIDE, Logged, Marker, Say, log_run
from tasks.tracking.promotion import registrations_of
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.run_record import FIGURES_FILE, RunRecord

# Seconds before each attempt of who waits for MLflow, and how long a run leaves one alone that is away.
PAUSES = (0.0, 1.0, 2.0)
AWAY_SECONDS = 60.0


class Tracking:
    """Logs one run. While MLflow is away the run goes on, and says so once; its folder keeps what is to be logged."""

    def __init__(self, config: RetrainConfig, record: RunRecord, say: Say | None = None) -> None:
        self._settings, self._record, self._say = config.tracking, record, say or (lambda text: None)
        self._last = Logged()
        self._again = 0.0

    @classmethod
    def open(cls, config: RetrainConfig, record: RunRecord, say: Say | None = None) -> Tracking:
        """Begin to log a run: its MLflow run is the existing one, or a new one.

        Raises:
            InfrastructureError: MLflow answers and refuses.
        """
        tracking = cls(config, record, say)
        record.keep_config(config.model_dump(mode="json"))
        logged = tracking.log(patient=True)
        if logged.refused and logged.mlflow_run is None:
            raise InfrastructureError(f"MLflow: {logged.reason}")
        return tracking

    @property
    def mlflow_run(self) -> str | None:
        """Id of the run in MLflow; None where it has none yet."""
        return self._last.mlflow_run

    def log_iteration(self, iteration: int, metrics: Mapping[str, float | None]) -> None:
        """Note the metrics of an iteration in the run's folder, and log the run."""
        self._record.note_figures(iteration, metrics)
        self.log()

    def log(self, *, patient: bool = False, status: str | None = None) -> Logged:
        """Log the run as its folder is now.

        Args:
            patient: Try a few times; otherwise an MLflow that was away is left alone for a while.
            status: The run's status in MLflow; None for what its folder says.
        """
        if not patient and time.monotonic() < self._again:
            return self._last
        before = self._last
        for pause in PAUSES if patient and not before.waits else PAUSES[:1]:
            time.sleep(pause)
            self._last = log_run(self._record.path, self._settings, status=status, say=self._say)
            if not self._last.waits or self._last.refused:
                break
        self._again = time.monotonic() + AWAY_SECONDS if self._last.waits else 0.0
        if self._last.waits and self._last.reason != before.reason:
            self._say(f"MLflow is away ({self._last.reason}): {self._record.path} keeps what waits, and the run goes on")
        elif before.waits and not self._last.waits:
            self._say("MLflow answers again, and has all of the run")
        return self._last

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close the MLflow run by how the block ends."""
        try:
            yield
        except BaseException as error:
            self.log(patient=True, status="FAILED" if isinstance(error, Exception) else "KILLED")
            raise
        if self.log(patient=True, status="FINISHED").waits:
            self._say(f"run {self._record.run_id} waits for MLflow: the next run delivers it, or `tracewheel runs sync`")


@dataclass(frozen=True)
class Delivered:
    """What became of the runs of a work folder.

    Attributes:
        runs: Ids of those that MLflow did not have in full, and has now.
        waiting: Id of those that still wait to the reason.
    """

    runs: tuple[str, ...] = ()
    waiting: Mapping[str, str] | None = None

    @property
    def reason(self) -> str:
        """Why runs wait, in a sentence."""
        return "; ".join(f"run {run_id}: {reason}" for run_id, reason in (self.waiting or {}).items())


def waiting_runs(work_dir: str | Path) -> list[RunRecord]:
    """The runs that MLflow does not have in full, as far as their folders say; the earliest to register something first."""
    return [record for record in _logged_runs(work_dir) if Marker.read(record.path).waits]


def deliver_waiting(work_dir: str | Path, say: Say, *, every: bool = False) -> Delivered:
    """Log what runs of a work folder could not log while MLflow was away.

    Args:
        work_dir: The folder.
        say: Told how it went.
        every: Log all runs again that were ever logged, and try a few times; otherwise those that wait, once.
    """
    done: list[str] = []
    waiting: dict[str, str] = {}
    for pause in PAUSES if every else PAUSES[:1]:
        time.sleep(pause)
        waiting = {}
        for record in _logged_runs(work_dir) if every else waiting_runs(work_dir):
            if (logged := log_run(record.path, say=say)).waits:
                waiting[record.run_id] = logged.reason
            elif logged.brought:
                done.append(record.run_id)
        if not waiting:
            break
    found = Delivered(tuple(dict.fromkeys(done)), waiting)
    if found.runs:
        say(f"delivered to MLflow: run {', '.join(found.runs)}")
    if waiting:
        say(f"waits for MLflow: {found.reason}")
    return found


@bounded
def require_mlflow(config: RetrainConfig, purpose: str, say: Say) -> None:
    """Make sure that MLflow answers and has what earlier runs logged, for what must not wait for it.

    Raises:
        MlflowAway: it does not answer, or does not take what waits.
    """
    make_client(config.tracking.uri).search_experiments(max_results=1)
    if (done := deliver_waiting(config.work_dir, say)).waiting:
        raise MlflowAway(f"runs wait for MLflow ({done.reason}), and {purpose} comes after them: `tracewheel runs sync` first")


@contextlib.contextmanager
def tracking_client(config: RetrainConfig, purpose: str, say: Say, *, every_artifact: bool = False) -> Iterator[Any]:
    """The MLflow client of a profile's store, which has what earlier runs logged; what it raises is one clear error.

    Args:
        config: The profile.
        purpose: What it is for, in a word or two.
        say: Told what was logged first.
        every_artifact: Whether artifacts of earlier are needed, too, which a store that was moved has lost.

    Raises:
        MlflowAway: it does not answer, or does not take what waits.
        InfrastructureError: every artifact is needed, and the sqlite store was moved and names some in another place.
    """
    with clear_errors():
        require_mlflow(config, purpose, say)
        client = make_client(config.tracking.uri)
        known = client.search_experiments() if every_artifact else ()
        ours = [one for one in known if one.name.split(PUT_ASIDE)[0] == config.tracking.experiment]
        if old := next(filter(None, (moved_from(one, config.tracking.uri) for one in ours)), None):
            raise InfrastructureError(
                f"{sqlite_file(config.tracking.uri)} was moved, and MLflow looks for artifacts in {old}: move it back, or"
                " delete it; `tracewheel runs sync` makes them again from the folders of the runs"
            )
        yield client


def _logged_runs(work_dir: str | Path) -> list[RunRecord]:
    found = {path.parent for name in (MARKER_FILE, FIGURES_FILE) for path in Path(work_dir).glob(f"*/{name}")}
    return [RunRecord(folder.parent, folder.name) for folder in sorted(found, key=_place)]


def _place(folder: Path) -> tuple[int, str]:
    """What waits to be registered comes in its order: each promotion is compared with the champion that it began from."""
    at = [int(one.values["at"]) for one in registrations_of(folder) if one.version is None]
    return min(at, default=0), folder.name
