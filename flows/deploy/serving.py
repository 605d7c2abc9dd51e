"""Prefect's runner, ended in order: first the run that it has started, then itself, then the server.

Prefect's own runner takes its server for granted when it ends, and waits for a process that waits for that server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import Any
from uuid import UUID

import httpx
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException
from prefect.flow_engine import run_flow_in_subprocess
from prefect.runner import Runner, _starter_direct
from prefect.states import Cancelled

from flows.deploy.ends import UNBEGUN
from tracewheel.core import stopping
from tracewheel.core.stopping import PARENTS_WORD, SAME_SECONDS, SIGNALS, Request, Stopped

LOOK_SECONDS = 0.1
AGAIN_SECONDS = 1.0  # a process whose flow has only just begun does not hear the first word
SERVER_SECONDS = 5.0
# After a signal: what is left of a run is killed, and this process ends in any case. The server needs a moment then, as all are
# promised to be gone after 30 s.
RUN_SECONDS, OWN_SECONDS = 20.0, 28.0


class OrderlyRunner(Runner):
    """A runner that ends its runs when a signal tells it to end, and waits for them; the second signal ends all at once."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._request: Request | None = None
        self._asked_at = 0.0
        self._ending: asyncio.Task[None] | None = None
        self._entered = False

    def serve(self) -> None:
        """Serve until a signal comes.

        Raises:
            Stopped: it has come.
        """
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            asyncio.run(self._serve())
        finally:  # a loop that closes leaves signals with their defaults
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._request:
            raise Stopped(self._request, f"deploy stopped ({self._request.reason}); the same command goes on")

    async def _serve(self) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        # A run's process inherits this, and would end in the middle of its start otherwise.
        signal.signal(PARENTS_WORD, signal.SIG_IGN)
        _starter_direct.run_flow_in_subprocess = _run_flow_held_back  # type: ignore[attr-defined]
        await self.start()

    def handle_sigterm(self, *args: Any, **kwargs: Any) -> None:
        """Prefect's handler would leave with exit code 0; the loop's (`_signalled`) is called, too."""

    async def __aenter__(self) -> OrderlyRunner:
        await super().__aenter__()
        self._entered = True
        if self._request:
            self._begin_to_end()
        return self

    async def __aexit__(self, *error: Any) -> None:
        with contextlib.suppress(httpx.HTTPError, PrefectException, TimeoutError):
            async with asyncio.timeout(SERVER_SECONDS):  # the user's server may be away; `deploy` starts its schedules again
                await self._pause_schedules()
        self.pause_on_shutdown = False
        await super().__aexit__(*error)

    def _signalled(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if self._request is None:
            self._request, self._asked_at = Request(number.name, 128 + number), now
            stopping.ask(number.name, 128 + number, grace=0.0, last=OWN_SECONDS)
            if self._entered:
                self._begin_to_end()
        elif now > self._asked_at + SAME_SECONDS:
            for _, pid in self._running():
                _send(pid, signal.SIGKILL)
            _say("ended at once")
            os._exit(self._request.exit_code)

    def _begin_to_end(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        """Tell the runs to stop, wait for them, and leave `start`."""
        assert self._request
        self.stopping = self._scheduled_run_poller.stopping = True
        deadline = self._asked_at + RUN_SECONDS
        if self._process_manager.flow_run_ids():
            _say(f"{self._request.reason}: a run is told to stop at its next safe point")
        told: dict[int, float] = {}
        while self._process_manager.flow_run_ids() or self._scheduled_run_poller._submitting_flow_run_ids:
            for flow_run, pid in self._running():
                if time.monotonic() > deadline:
                    _send(pid, signal.SIGKILL)
                elif time.monotonic() > told.get(pid, 0.0) + AGAIN_SECONDS:
                    told[pid] = time.monotonic()
                    _send(pid, PARENTS_WORD)
                    await self._end_unbegun(flow_run, pid)
            if time.monotonic() > deadline + SERVER_SECONDS:
                break
            await asyncio.sleep(LOOK_SECONDS)
        self._loops_task_group.cancel_scope.cancel()

    async def _end_unbegun(self, flow_run: UUID, pid: int) -> None:
        """End a run whose process is still starting: it has nothing to lose, and may hear the word too late."""
        assert self._request
        with contextlib.suppress(httpx.HTTPError, PrefectException, TimeoutError):
            async with asyncio.timeout(SERVER_SECONDS):
                state = (await self._client.read_flow_run(flow_run)).state
                if state and state.is_pending():
                    stopped: State[Any] = Cancelled(name="Stopped", message=UNBEGUN.format(self._request.reason))
                    await self._client.set_flow_run_state(flow_run, stopped, force=True)
                    _send(pid, signal.SIGKILL)

    def _running(self) -> list[tuple[UUID, int]]:
        """The runs whose processes live, and their ids."""
        handles = [(flow_run, self._process_manager.get(flow_run)) for flow_run in self._process_manager.flow_run_ids()]
        return [(flow_run, handle.pid) for flow_run, handle in handles if handle and handle.pid]


def _run_flow_held_back(*args: Any, **kwargs: Any) -> Any:
    """A run's process hears signals once its flow has begun (`ends.in_order`), instead of ending in the midst of its start."""
    with stopping.held_back():
        return run_flow_in_subprocess(*args, **kwargs)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _say(text: str) -> None:
    print(f"tracewheel: {text}", file=sys.stderr, flush=True)
