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
| killed | crashed | Crashed, set by Prefect's runner or the next start |
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import prefect.runtime.deployment
import prefect.runtime.flow_run
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import Abort, ObjectNotFound, PrefectException
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.setup import resolve_config
from tasks.engine.artifacts import show_skip
from tasks.engine.run import Run
from tasks.records.telling import tell_end
from tracewheel.config import RetrainConfig
from tracewheel.core import run_state, stopping
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold
from tracewheel.core.processes import end_with_parent
from tracewheel.core.store import PARTIAL, disk_errors
from tracewheel.evaluation.wording import in_words
from tracewheel.operations.approval import approval_of

NOTES = ".flow_runs"
UNBEGUN = "stopped ({}) before the run began; the next start begins it"
GONE = "its process ended without a word; what was complete is stored, and the next run resumes it"
TIMED_OUT = "schedule.max_run_seconds"
Summary = dict[str, Any]


class Skipped(Exception):
    """A scheduled run that has nothing to learn; the message is the reason, a sentence for people."""


class Ended(Abort):
    """Ends the flow without another word: the server has its state already."""

    def __init__(self, state: State[Any]) -> None:
        super().__init__(state.message)
        self.state = state


def watched(config: RetrainConfig, work: Callable[[], State[Any]], *, scheduled: bool) -> State[Any]:
    """Do the work of a flow run with a note that shows whether its process lives, and tell the end of a scheduled one.

    Runs of this work folder that ended without a word are mended first.

    Returns:
        The state that the work came to.

    Raises:
        Ended: the run was stopped.
        TracewheelError: as the work raised it.
    """
    mend(config)
    name, ended = str(prefect.runtime.flow_run.name or "by hand"), None
    with _noted(config, {"run": name, "tell": scheduled}) as settle:
        try:
            ended = work()
        except Ended as end:
            ended = end.state
            raise
        except Exception as error:
            ended = Failed(message=str(error) or type(error).__name__)
            raise
        finally:
            if ended is not None:
                settle()
                if scheduled:
                    tell_end(config, name, str(ended.name), ended.message or "")
    return ended


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Let the flow end with the process that started it, and stop where a signal asks for it.

    Prefect's own handler of SIGTERM, which would take a run that is told to stop for crashed, lies around this block. Where the
    process is ours, ours stay after the block, until Prefect takes its own away.

    Raises:
        Ended: the flow was stopped; its state is set already.
    """
    if parent := multiprocessing.parent_process():
        assert parent.pid is not None
        end_with_parent(parent.pid)
    own = bool(not stopping.handled() and prefect.runtime.deployment.id)  # Prefect has started this process for the run alone
    if own or stopping.handled():
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
        Ended: the run was stopped; its state is set already.
        TracewheelError: as the work raised it.
    """
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
    if why := run.record.state.gives_up():
        raise InfrastructureError(
            f"gave up on run {run.record.run_id}: it {why}; new traces make another run, "
            "and `tracewheel retrain` resumes this one"
        )
    if schedule.max_run_seconds is not None:
        limit = f"{TIMED_OUT}: over {schedule.max_run_seconds:g} s"
        timer = threading.Timer(schedule.max_run_seconds, stopping.ask, (limit, 1, run.reporter.say))
        timer.daemon = True
        timer.start()


def complete(run: Run, summary: Summary) -> State[Any]:
    """The end of a run that came to a verdict; one that the gate would promote may wait for a person, or be decided on."""
    promoted = summary["gate"]["verdict"] != "refused"
    said = " ".join(in_words(summary["gate"]))
    name, state = ("Promoted", run_state.PROMOTED) if promoted else ("Refused", run_state.REFUSED)
    message, noted = f"run {run.record.run_id}: {said}", said
    approval = approval_of(run.record.path) if promoted else None
    if approval is not None and approval.outcome != run_state.PROMOTED:
        name, state = ("Refused", run_state.REFUSED) if approval.outcome else ("AwaitingApproval", run_state.AWAITING)
        message = f"the gate would promote {message} It {approval.says}"
        if approval.waits:
            message += f" (`tracewheel champion approve {run.record.path} --by NAME`)"
        noted = message
    run.record.state.end(state, noted)
    return Completed(name=name, message=f"{message} (report: {summary['report']})", data=summary)


def skipped(run: Run, reason: str) -> State[Any]:
    """The end of a run that has nothing to learn."""
    run.record.state.end(run_state.SKIPPED, reason)
    run.reporter.say(f"skipped: {reason}")
    show_skip(run.record.run_id, reason)
    return Completed(name="Skipped", message=reason)


def stopped(run: Run, request: stopping.Request) -> Ended:
    """The end of a run that was asked to stop; what is returned ends the flow."""
    stage = run.record.state.stage
    message = f"run {run.record.run_id} stopped ({request.reason})" + (f" at {stage}" if stage else "")
    message += "; what was complete is stored, and the same command, or the next start, resumes it"
    run.record.state.end(run_state.STOPPED, message)
    run.reporter.say(message)
    return _told(request, message)


def _told(request: stopping.Request, message: str) -> Ended:
    """Tell the server, if it can be reached, how the flow run ends; what is returned ends the flow without another word."""
    gc.freeze()  # the last collection of a process that has imported torch and Prefect takes seconds
    make = Failed if request.reason.startswith(TIMED_OUT) else Cancelled
    state: State[Any] = make(name="TimedOut" if make is Failed else "Stopped", message=message)
    if identifier := prefect.runtime.flow_run.id:
        with contextlib.suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
            client.set_flow_run_state(identifier, state, force=True)
    return Ended(state)


@contextlib.contextmanager
def _noted(config: RetrainConfig, about: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """Keep a note of this flow run, locked while its process lives. What is yielded writes that its end is told elsewhere."""
    identifier = prefect.runtime.flow_run.id
    if not identifier:
        yield lambda: None
        return
    folder = Path(config.work_dir) / NOTES
    note, partial = folder / str(identifier), folder / f"{PARTIAL}{identifier}-{os.getpid()}"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(about))
    with hold(partial):
        os.replace(partial, note)
        yield lambda: _settle(note, about)


def _settle(note: Path, about: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a full disk: told twice at worst
        note.write_text(json.dumps(about | {"tell": False}))


def crashed(flow: Any, flow_run: Any, state: State[Any]) -> None:
    """Prefect's runner has found that the process of a scheduled run is gone: tell it. A hook of the flow."""
    given = flow_run.parameters
    if not (state.is_crashed() and given.get("scheduled")):
        return
    config = resolve_config(given["profile"], given.get("overrides"), given.get("run_dir"))
    note = Path(config.work_dir) / NOTES / str(flow_run.id)
    note.unlink(missing_ok=True)
    tell_end(config, flow_run.name, "Crashed", f"{state.message} {GONE}")


def mend(config: RetrainConfig) -> list[str]:
    """Set the flow runs of a work folder to Crashed that the server takes for running though their process is gone; tell it.

    The server hears it when it can be reached, if need be after the next start.

    Returns:
        Their ids.
    """
    mended = []
    for note in sorted((Path(config.work_dir) / NOTES).glob("[!.]*")):
        with hold(note) as gone:
            if not gone or not note.is_file():
                continue
            with contextlib.suppress(DataError):
                about = read_json(note)
                if about["tell"]:
                    tell_end(config, about["run"], "Crashed", GONE)
                    _settle(note, about)
            try:
                if _set_crashed(note.name):
                    mended.append(note.name)
            except (httpx.HTTPError, PrefectException):
                return mended
            note.unlink()
    return mended


def _set_crashed(identifier: str) -> bool:
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
