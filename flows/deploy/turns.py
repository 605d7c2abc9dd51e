"""One run at a time for each champion, and one late run for each deployment.

On one machine a file's lock holds the champion: the system releases it when its process ends, however it ends. Between
machines that share a Prefect server, a global concurrency limit of Prefect does. It is not the limit of the deployment:
Prefect ends a run that cannot renew such a slot, and a server that is away for a minute must not cost a training.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import prefect.runtime.deployment
import prefect.runtime.flow_run
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.concurrency.sync import concurrency
from prefect.states import Cancelled, Running

from flows.deploy.checks import without_password
from tasks.tracking.client import sqlite_file
from tracewheel.config import RetrainConfig
from tracewheel.core.locks import hold
from tracewheel.core.store import disk_errors
from tracewheel.core.types import content_hash

LOOK_SECONDS = 2.0
SLOT_SECONDS = 30.0
WAITING = "Waiting"
Say = Callable[[str], None]


def champion_key(config: RetrainConfig) -> str:
    """A name for what runs of different profiles must not change at once: the champion of a model's name in a registry.

    The alias is one for all bases of that name, so the base is no part of it.
    """
    database = sqlite_file(config.tracking.uri)
    registry = str(database.resolve()) if database else without_password(config.tracking.uri).rstrip("/")
    return f"champion-{content_hash([registry, config.tracking.model_name], length=12)}"


@contextlib.contextmanager
def in_turn(config: RetrainConfig, *, scheduled: bool) -> Iterator[str]:
    """Hold the champion while a run may change it. A run that nobody waits for waits for the others first.

    A run that was started by hand does not wait; where nobody holds the champion, it makes scheduled runs wait.

    Yields:
        Why the run is not to go on; empty when it is.
    """
    if not scheduled:
        with _held(config):
            yield ""
        return
    deadline = time.monotonic() + config.schedule.wait_seconds
    with contextlib.ExitStack() as stack:
        in_the_way = _wait_for_file(config, deadline, stack) or _wait_for_slot(config, deadline, stack)
        if not in_the_way:
            cancel_missed()
        yield in_the_way


@contextlib.contextmanager
def _held(config: RetrainConfig) -> Iterator[tuple[Path, bool]]:
    """The lock's file, and whether this process holds it."""
    database = sqlite_file(config.tracking.uri)
    folder = database.parent if database else Path(tempfile.gettempdir()) / f"tracewheel-{os.getuid()}"
    path = folder / f".{champion_key(config)}.lock"
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
    with hold(path) as held:
        if held:
            path.write_text(f"{_own_name()} (process {os.getpid()})")
        yield path, held


def _wait_for_file(config: RetrainConfig, deadline: float, stack: contextlib.ExitStack) -> str:
    """Take the lock of this machine; returns why it could not be had."""
    with _waiting() as say:
        while True:
            attempt = contextlib.ExitStack()
            path, held = attempt.enter_context(_held(config))
            if held or not _has_locks(path.parent):
                stack.push(attempt)
                return ""
            attempt.close()
            holder = path.read_text().strip() or "another run"
            if time.monotonic() > deadline:
                return _in_the_way(config, holder)
            say(f"waiting for {holder}, which works on the same champion ({config.tracking.model_name})")
            time.sleep(LOOK_SECONDS)


def _wait_for_slot(config: RetrainConfig, deadline: float, stack: contextlib.ExitStack) -> str:
    """Take the slot of all machines; returns why it could not be had. Without a deployment there is none."""
    if not prefect.runtime.deployment.id:
        return ""
    name = champion_key(config)
    with _waiting() as say:
        while True:
            slot = concurrency(name, timeout_seconds=SLOT_SECONDS, strict=False)
            try:
                slot.__enter__()
            except TimeoutError:
                _free_lost_slot(name)
            except Exception as error:  # Prefect is away: what the limit guards against is rarer than a lost night
                away = f"Prefect's limit {name} could not be asked ({type(error).__name__})"
                print(f"{away}; going on without it", file=sys.stderr)
                return ""
            else:
                stack.callback(_leave, slot)
                return ""
            if time.monotonic() > deadline:
                return _in_the_way(config, "a run on another machine")
            say(f"waiting for a run on another machine, which works on the same champion ({config.tracking.model_name})")


def _leave(slot: Any) -> None:
    try:
        slot.__exit__(None, None, None)
    except Exception as error:  # Prefect is away; its lease ends by itself
        print(f"Prefect's concurrency slot was not given back ({type(error).__name__}): it ends by itself", file=sys.stderr)


def _in_the_way(config: RetrainConfig, holder: str) -> str:
    waited = f"{config.schedule.wait_seconds:g} s (schedule.wait_seconds)"
    return f"{holder} works on the same champion ({config.tracking.model_name}) and did not end within {waited}"


def _has_locks(folder: Path) -> bool:
    """Whether the file system knows locks; where it does not, everything seems held."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".lock-") as probe, hold(Path(probe.name)) as held:
        return held


def cancel_missed() -> None:
    """Cancel the other runs of this deployment whose time has come: this run takes in what they would have taken in.

    So a server that was down, or a run longer than the interval, leaves one late run.
    """
    me, deployment_id = prefect.runtime.flow_run.id, prefect.runtime.deployment.id
    if not deployment_id:
        return
    due = {"state": {"type": {"any_": ["SCHEDULED"]}}, "expected_start_time": {"before_": datetime.now(UTC)}}
    late = FlowRunFilter.model_validate({"deployment_id": {"any_": [deployment_id]}, **due})
    try:
        with get_client(sync_client=True) as client:
            for other in client.read_flow_runs(flow_run_filter=late):
                if str(other.id) != me:
                    why = f"missed: {_own_name()} started later and takes in the same traces"
                    client.set_flow_run_state(other.id, Cancelled(name="Missed", message=why))
    except Exception as error:  # Prefect is away: the late runs find nothing new
        print(f"late runs could not be cancelled ({type(error).__name__})", file=sys.stderr)


def _free_lost_slot(name: str) -> None:
    """Empty a limit that no running run holds: a server that forgets leases when it restarts would never free it."""
    active = FlowRunFilter.model_validate({"tags": {"all_": [name]}, "state": {"type": {"any_": ["RUNNING", "CANCELLING"]}}})
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:  # away: the next look asks again
        others = [run for run in client.read_flow_runs(flow_run_filter=active) if str(run.id) != prefect.runtime.flow_run.id]
        if all(run.state_name == WAITING for run in others):
            client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(active_slots=0))


@contextlib.contextmanager
def _waiting() -> Iterator[Say]:
    """Say once why the run waits, in its state, too; the state is «Running» again when it waits no more."""
    said: list[str] = []

    def say(why: str) -> None:
        if not said:
            said.append(why)
            print(why, file=sys.stderr)
            _set_state(Running(name=WAITING, message=why))

    yield say
    if said:
        _set_state(Running())


def _set_state(state: Any) -> None:
    if flow_run_id := prefect.runtime.flow_run.id:
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:  # away: the run itself goes on
            client.set_flow_run_state(flow_run_id, state, force=True)


def _own_name() -> str:
    name = f"run {prefect.runtime.flow_run.name or 'by hand'}"
    with contextlib.suppress(Exception):  # Prefect, which knows the deployment's name, is away
        return f"{name} of {prefect.runtime.deployment.name}" if prefect.runtime.deployment.name else name
    return name
