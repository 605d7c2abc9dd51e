"""Serves a deployment with Prefect's runner, and ends in order: first the run that it has started, then it, then the server.

Prefect's runner lives in a thread, so signals are ours. What it starts inherits that this thread hears none: a run's process
hears those of its start once its flow has begun (`ends.in_order`).
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import sys
import threading
import time
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.exceptions import PrefectException
from prefect.runner import Runner
from prefect.states import Cancelled

from flows.deploy.ends import UNBEGUN
from tasks.records.telling import tell_end
from tracewheel.config import RetrainConfig
from tracewheel.core import stopping
from tracewheel.core.errors import InfrastructureError

LOOK_SECONDS = 0.5
# After a signal: what is left of a run is killed, and then this process ends in any case (`commands.deploy`).
RUN_SECONDS, SERVER_SECONDS = 20.0, 5.0


def serve(runner: Runner, deployment_id: UUID, config: RetrainConfig) -> None:
    """Serve until a signal comes.

    Raises:
        Stopped: it has come, and the run that was in progress has ended.
        InfrastructureError: the runner gave up.
    """
    serving = _Serving(runner)
    with stopping.held_back():
        serving.start()
    try:
        while not serving.ended.wait(LOOK_SECONDS):  # `join` would take a thread for ended when a signal's handler raises in it
            pass
    except stopping.Stopped as stop:
        _end(serving, deployment_id, config, stop.request.reason)
        raise stopping.Stopped(stop.request, f"deploy stopped ({stop.request.reason}); the same command goes on") from None
    raise InfrastructureError(f"Prefect's runner has ended: {serving.problem}") from serving.problem


class _Serving(threading.Thread):
    """The runner in its thread; `leave` has it pause its schedules, and end."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(name="runner", daemon=True)
        self._runner = runner
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Task[Any] | None = None
        self.ended = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as loop:
                loop.run(self._serve())
        except BaseException as problem:
            self.problem = problem
        finally:
            self.ended.set()

    async def _serve(self) -> None:
        self._work = asyncio.current_task()
        await self._runner.start()

    def leave(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(lambda: self._work and self._work.cancel())


def _end(serving: _Serving, deployment_id: UUID, config: RetrainConfig, reason: str) -> None:
    """Tell the run to stop, and wait for it and for the runner."""
    deadline = time.monotonic() + RUN_SECONDS
    if multiprocessing.active_children():
        print(f"tracewheel: {reason}: the run is told to stop at its next safe point", file=sys.stderr, flush=True)
    told = set()
    while runs := multiprocessing.active_children():
        _end_unbegun(deployment_id, config, reason)
        for run in runs:
            if time.monotonic() > deadline:
                run.kill()
            elif run.pid and run.pid not in told:
                told.add(run.pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(run.pid, stopping.PARENTS_WORD)
        time.sleep(LOOK_SECONDS)
    serving.leave()
    while not serving.ended.wait(LOOK_SECONDS) and time.monotonic() < deadline + SERVER_SECONDS:
        _end_unbegun(deployment_id, config, reason)  # one that was about to be started
        for run in multiprocessing.active_children():
            run.kill()
    _end_unbegun(deployment_id, config, reason)


def _end_unbegun(deployment_id: UUID, config: RetrainConfig, reason: str) -> None:
    """End a run whose process is still starting: it has nothing to lose, and would hear the word late."""
    pending = {"deployment_id": {"any_": [deployment_id]}, "state": {"type": {"any_": ["PENDING"]}}}
    starting = FlowRunFilter.model_validate(pending)
    with contextlib.suppress(httpx.HTTPError, PrefectException, RuntimeError), get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=starting):
            message = UNBEGUN.format(reason)
            client.set_flow_run_state(run.id, Cancelled(name="Stopped", message=message), force=True)
            for process in multiprocessing.active_children():  # one at most: the runner's limit
                process.kill()
            tell_end(config, run.name, "Stopped", message)
