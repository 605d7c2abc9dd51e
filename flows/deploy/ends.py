"""How a run ends: in its record (`state.json`), in Prefect (name and message of the flow run's state), and for its process.

| end | state.json | Prefect |
|---|---|---|
| the gate promoted | promoted | Completed, named Promoted |
| the gate refused | refused | Completed, named Refused |
| it would promote, and `gate.approval` is required | awaiting approval | Completed, named AwaitingApproval |
| nothing to learn | skipped | Completed, named Skipped |
| an error | failed | Failed |
| SIGTERM, interrupt | stopped | Cancelled, named Stopped |
| `schedule.max_run_seconds` | stopped | Failed, named TimedOut |
| killed | crashed | Crashed, set by the next start |
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import prefect.flow_engine
import prefect.runtime.deployment
import prefect.runtime.flow_run
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import Abort, ObjectNotFound, PrefectException
from prefect.states import Cancelled, Completed, Crashed, Failed

from tasks.engine.artifacts import show_skip
from tasks.engine.run import Run
from tracewheel.core import run_state, stopping
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.processes import end_with_parent
from tracewheel.core.store import PARTIAL, disk_errors
from tracewheel.operations.approval import Approval, approval_of

NOTES = ".flow_runs"
UNBEGUN = "stopped ({}) before the run began; the next start begins it"
GONE = "its process ended without a word; what was complete is stored, and the next run resumes it"
TIMED_OUT = "schedule.max_run_seconds"
Summary = dict[str, Any]
_held = contextlib.ExitStack()
# Signals are ours from a process's start to its end. Prefect's own handler would lie around ours at both ends of a run, and
# take one that was told to stop, or is complete, for crashed.
prefect.flow_engine.capture_sigterm = contextlib.nullcontext  # type: ignore[attr-defined, assignment]


class Skipped(Exception):
    """A scheduled run that has nothing to learn; the message is the reason, a sentence for people."""


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Let the flow end with the process that started it, and stop where a signal asks for it.

    Raises:
        Abort: the flow was stopped; its state is set already.
    """
    if parent := multiprocessing.parent_process():
        assert parent.pid is not None
        end_with_parent(parent.pid)
    own = bool(not stopping.handled() and prefect.runtime.deployment.id)  # Prefect has started this process for the run alone
    if own:
        stopping.listen(grace=stopping.GRACE_SECONDS)
    with stopping.stoppable():
        try:
            stopping.check()
            yield
        except stopping.Stopped as stop:
            raise _told(stop.request, UNBEGUN.format(stop.request.reason)) from None
        finally:
            if own:
                stopping.done()


def ending(run: Run, work: Callable[[], Summary]) -> State[Any]:
    """Do a run's work, and give it its end.

    Returns:
        The state of the flow run, with the summary as its data.

    Raises:
        Abort: the run was stopped; its state is set already.
        TracewheelError: as the work raised it.
    """
    note(run)
    try:
        summary = work()
    except Skipped as skip:
        return skipped(run, str(skip))
    except stopping.Stopped as stop:
        raise stopped(run, stop.request) from None
    except Exception as error:
        if request := stopping.requested():  # as when a helper got the same signal
            raise stopped(run, request) from error
        run.record.state.end(run_state.FAILED, str(error) or type(error).__name__)
        raise
    return complete(run, summary)


def begin(run: Run, *, scheduled: bool) -> None:
    """What a run has to know of its earlier starts, once it holds the store: give up, or take the time.

    Raises:
        InfrastructureError: a scheduled run has failed too often at one stage.
    """
    if not scheduled:
        return
    schedule = run.config.schedule
    if why := run.record.state.gives_up(schedule.give_up_after):
        raise InfrastructureError(
            f"gave up on run {run.record.run_id}: it {why} (schedule.give_up_after); new traces make another run, "
            "and `tracewheel retrain` resumes this one"
        )
    if schedule.max_run_seconds is not None:
        limit = f"{TIMED_OUT}: over {schedule.max_run_seconds:g} s"
        timer = threading.Timer(schedule.max_run_seconds, stopping.ask, (limit, 1, run.reporter.say))
        timer.daemon = True
        timer.start()


def complete(run: Run, summary: Summary) -> State[Any]:
    """The end of a run that came to a verdict."""
    gate = summary["gate"]
    promoted = gate["verdict"] != "refused"
    reasons = "; ".join(gate["reasons"])
    approval = approval_of(run.record.path) if promoted else None
    if approval is not None and approval.outcome != run_state.PROMOTED:
        return _undecided(run, summary, approval)
    message = f"run {run.record.run_id} {gate['verdict']} against {gate['baseline']}: {reasons} (report: {summary['report']})"
    run.record.state.end(run_state.PROMOTED if promoted else run_state.REFUSED, reasons)
    return Completed(name="Promoted" if promoted else "Refused", message=message, data=summary)


def _undecided(run: Run, summary: Summary, approval: Approval) -> State[Any]:
    """The end of a run that the gate would promote: it waits for a person, or was decided on otherwise."""
    name, state = ("Refused", run_state.REFUSED) if approval.outcome else ("AwaitingApproval", run_state.AWAITING)
    message = f"the gate would promote run {run.record.run_id}: {'; '.join(summary['gate']['reasons'])}. It {approval.says}"
    if approval.waits:
        message += f" (`tracewheel champion approve {run.record.path} --by NAME`)"
    run.record.state.end(state, message)
    return Completed(name=name, message=f"{message} (report: {summary['report']})", data=summary)


def skipped(run: Run, reason: str) -> State[Any]:
    """The end of a run that has nothing to learn."""
    run.record.state.end(run_state.SKIPPED, reason)
    run.reporter.say(f"skipped: {reason}")
    show_skip(run.record.run_id, reason)
    return Completed(name="Skipped", message=reason)


def stopped(run: Run, request: stopping.Request) -> Abort:
    """The end of a run that was asked to stop; what is returned ends the flow."""
    stage = run.record.state.stage
    message = f"run {run.record.run_id} stopped ({request.reason})" + (f" at {stage}" if stage else "")
    message += "; what was complete is stored, and the same command, or the next start, resumes it"
    run.record.state.end(run_state.STOPPED, message)
    run.reporter.say(message)
    return _told(request, message)


def _told(request: stopping.Request, message: str) -> Abort:
    """Tell the server, if it can be reached, how the flow run ends; what is returned ends the flow without another word."""
    gc.freeze()  # the last collection of a process that has imported torch and Prefect takes seconds
    make = Failed if request.reason.startswith(TIMED_OUT) else Cancelled
    state: State[Any] = make(name="TimedOut" if make is Failed else "Stopped", message=message)
    if identifier := prefect.runtime.flow_run.id:
        with contextlib.suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
            client.set_flow_run_state(identifier, state, force=True)
    ended = Abort(message)
    ended.state = state  # type: ignore[attr-defined]
    return ended


def note(run: Run) -> None:
    """Keep a note of this flow run that shows whether its process lives: the process holds a lock on it until it ends."""
    identifier = prefect.runtime.flow_run.id
    if not identifier:
        return
    folder = Path(run.config.work_dir) / NOTES
    partial = folder / f"{PARTIAL}{identifier}-{os.getpid()}"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        partial.touch()
    _held.enter_context(hold(partial))
    os.replace(partial, folder / str(identifier))


def mend(work_dir: Path) -> list[str]:
    """Set the flow runs of a work folder to Crashed that the server takes for running though their process is gone.

    Nothing is changed while the server cannot be reached; the next start tries again.

    Returns:
        Their ids.
    """
    mended = []
    for note in sorted((work_dir / NOTES).glob("[!.]*")):
        with hold(note) as gone:
            if not gone:
                continue
            try:
                if _crashed(note.name):
                    mended.append(note.name)
            except (httpx.HTTPError, PrefectException):
                return mended
            note.unlink()
    return mended


def _crashed(identifier: str) -> bool:
    """Whether a flow run was not final; it is Crashed now."""
    with get_client(sync_client=True) as client:
        try:
            state = client.read_flow_run(UUID(identifier)).state
        except ObjectNotFound:  # of another server
            return False
        if state is not None and state.is_final():
            return False
        client.set_flow_run_state(UUID(identifier), Crashed(message=GONE), force=True)
        return True
