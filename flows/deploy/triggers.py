"""Starts runs of a deployment when traces arrive, or when they drift. Prefect has the runs; this only looks and asks."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from flows.deploy.checks import Plan
from tracewheel.core.types import content_hash
from tracewheel.operations.arrivals import Arrivals

LOOK_SECONDS = 5.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 60.0, 3600.0
RUNS_LOOKED_AT = 20
# A test on fewer outcomes has no power worth a look.
LEAST_FOR_DRIFT, DRIFT_SECONDS = 20, 3600.0
NEVER_ENOUGH = 10**9


@dataclass(frozen=True)
class History:
    """The last runs of a deployment.

    Attributes:
        busy: Whether one is running or about to.
        taken_in: When the last run that completed began; None without one.
        next_try: When a run may start after runs that failed.
    """

    busy: bool
    taken_in: datetime | None
    next_try: datetime | None

    @classmethod
    def of(cls, runs: list[Any]) -> History:
        """The history by Prefect's flow runs, latest start first."""
        busy = any(run.state and (run.state.is_running() or run.state.is_pending() or run.state.is_scheduled()) for run in runs)
        ended = [run for run in runs if run.start_time and run.state and run.state.is_final()]
        completed = next((run for run in ended if run.state.is_completed()), None)
        failed = ended[: ended.index(completed)] if completed else ended
        failed = [run for run in failed if not run.state.is_cancelled()]
        next_try = None
        if failed and failed[0].end_time:
            wait = min(FIRST_RETRY_SECONDS * 2 ** (len(failed) - 1), LONGEST_RETRY_SECONDS)
            next_try = datetime.fromtimestamp(failed[0].end_time.timestamp() + wait, UTC)
        return cls(busy, completed.start_time if completed else None, next_try)


@contextlib.contextmanager
def watching(plan: Plan, deployment_id: UUID) -> Iterator[None]:
    """Look for what starts runs beside the block, in a thread; nothing without triggers."""
    looks = [make(plan) for option, make in TRIGGERS.items() if getattr(plan.options, option)]
    if not looks:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(looks, deployment_id, ended), name="triggers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def has_triggers(plan: Plan) -> bool:
    """Whether something besides a schedule starts runs."""
    return any(getattr(plan.options, option) for option in TRIGGERS)


Look = Callable[[Any, UUID], None]


def on_new_traces(plan: Plan) -> Look:
    """A look that starts a run when enough records have arrived in the folder since the last run that completed began."""
    folder = Path(plan.options.on_new_traces)
    why = f"{{}} new records in {folder}"
    return _when_arrived(_arrivals(plan, (str(folder.resolve()),)), plan.options.min_new, 0.0, why, "on-new-traces")


def on_drift(plan: Plan) -> Look:
    """A look that starts a run to look for drift when records have arrived since the last one, once an hour at most.

    The run takes in and curates what is new, makes the test (`tasks.records.decisions`), and ends as «Skipped» with its figures
    unless it finds a drift: new evidence alone does not make it train.
    """
    given = {"overrides": [*plan.options.overrides, f"schedule.min_new_tasks={NEVER_ENOUGH}"]}
    arrivals = _arrivals(plan, plan.config.ingest.paths)
    return _when_arrived(arrivals, LEAST_FOR_DRIFT, DRIFT_SECONDS, "a look for drift in {} new records", "on-drift", given)


def _when_arrived(
    arrivals: Arrivals, least: int, rest: float, why: str, tag: str, parameters: dict[str, Any] | None = None
) -> Look:
    """A look that starts a run when `least` records have arrived, and `rest` seconds have gone since one took others in."""

    def look(client: Any, deployment_id: UUID) -> None:
        if arrivals.look() < least:
            return
        history = read_history(client, deployment_id)
        if history.taken_in:
            arrivals.forget_until(history.taken_in)
        rested = history.taken_in is None or is_past(history.taken_in + timedelta(seconds=rest))
        if arrivals.total >= least and rested and not history.busy and is_past(history.next_try):
            start_run(client, deployment_id, why.format(arrivals.total), tag, parameters)

    return look


def _arrivals(plan: Plan, paths: tuple[str, ...]) -> Arrivals:
    state = Path(plan.config.work_dir) / f".arrivals-{content_hash([plan.name, paths], length=8)}.json"
    return Arrivals.open(plan.config.ingest, paths, state)


TRIGGERS: dict[str, Callable[[Plan], Look]] = {"on_new_traces": on_new_traces, "on_drift": on_drift}


def is_past(when: datetime | None) -> bool:
    return when is None or when <= datetime.now(UTC)


def read_history(client: Any, deployment_id: UUID) -> History:
    """The deployment's last runs; those that a schedule will start later are left out."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    wanted = {"deployment_id": {"any_": [deployment_id]}, "expected_start_time": {"before_": datetime.now(UTC)}}
    due, newest = FlowRunFilter.model_validate(wanted), FlowRunSort.EXPECTED_START_TIME_DESC
    return History.of(client.read_flow_runs(flow_run_filter=due, sort=newest, limit=RUNS_LOOKED_AT))


def start_run(client: Any, deployment_id: UUID, why: str, tag: str, parameters: dict[str, Any] | None = None) -> None:
    """Have Prefect start a run of the deployment, with the reason in its first state and parameters of its own."""
    from prefect.states import Scheduled

    run = client.create_flow_run_from_deployment(deployment_id, parameters=parameters, state=Scheduled(message=why), tags=[tag])
    print(f"{why}: starting run {run.name}", file=sys.stderr, flush=True)


def _watch(looks: list[Look], deployment_id: UUID, ended: threading.Event) -> None:
    from prefect.client.orchestration import get_client

    troubled = ""
    while not ended.wait(LOOK_SECONDS):
        try:
            with get_client(sync_client=True) as client:
                for look in looks:
                    look(client, deployment_id)
        except Exception as error:  # Prefect or the disk is away: the next look tries again
            trouble = f"{type(error).__name__}: {error}".splitlines()[0]
            if trouble != troubled and not ended.is_set():
                print(f"triggers: {trouble}; trying again", file=sys.stderr, flush=True)
            troubled = trouble
        else:
            troubled = ""
