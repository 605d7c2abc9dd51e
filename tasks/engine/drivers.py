"""How a run obtains the results of its stages: through Prefect, or in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracewheel.core import stopping
from tracewheel.core.errors import TracewheelError
from tracewheel.core.store import Entry

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from tasks.engine.run import Run
    from tasks.engine.stage import Call, StageTask

PROBE_SECONDS = 5.0


def is_prefect_away(error: BaseException) -> bool:
    """Whether an error comes from Prefect's server being away: it is of no boundary of ours, and the server does not answer."""
    import httpx

    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, TracewheelError):
            return False
        chain = chain.__cause__ or chain.__context__
    address = os.environ.get("PREFECT_API_URL")
    if not isinstance(error, Exception) or not address:
        return False
    try:
        return not httpx.get(f"{address.rstrip('/')}/health", timeout=PROBE_SECONDS).is_success
    except httpx.HTTPError:
        return True


class DirectDriver:
    """How a run obtains the results of its stages: each in this process, without Prefect, when its result is needed."""

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
        """The entry of a call: reused, or made now."""
        stopping.check()
        call.run.reporter.start(call.label)
        started = time.perf_counter()
        stored = call.stored(stage.stage)
        state = "Failed"
        try:
            entry = stored or stage.make_entry(call)
            state = "Cached" if stored else "Completed"
        finally:
            call.run.reporter.end(call.label, state, time.perf_counter() - started)
        return replace(entry, reused=stored is not None)

    def progress(self, iterations: int) -> Callable[[int], None]:
        """Show the progress of a loop; call the returned function after each iteration."""
        return lambda iteration: None

    def call(self, task: Any, run: Run, *args: Any) -> Any:
        """Call a Prefect task that is no stage, and that may be repeated."""
        return task.fn(run, *args)


class PrefectDriver(DirectDriver):
    """Runs each stage as a Prefect task, inside a flow; once Prefect's server is gone, in this process."""

    def __init__(self) -> None:
        self._alone = False

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
        stopping.check()
        if self._alone:
            return super().get(stage, call)
        call.run.reporter.start(call.label)
        started = time.perf_counter()
        stored = call.stored(stage.stage)
        call.run.record.state.at(call.label)
        task = stage.task.with_options(task_run_name=call.label, refresh_cache=stored is None)
        try:
            state: State[dict[str, Any]] = task(call, return_state=True)
        except Exception as error:  # a stage's own errors come in the state
            self._go_on(error, call.run)
            return super().get(stage, call)
        seconds = time.perf_counter() - started
        shown = "Cached" if stored and state.is_completed() else state.name or state.type.value
        call.run.reporter.end(call.label, shown, seconds)
        record = state.result()
        stopping.check()
        return Entry(**{**record, "path": call.run.store.root / record["path"], "reused": stored is not None})

    def call(self, task: Any, run: Run, *args: Any) -> Any:
        if not self._alone:
            try:
                return task(run, *args)
            except Exception as error:
                self._go_on(error, run)
        return super().call(task, run, *args)

    def _go_on(self, error: Exception, run: Run) -> None:
        """Without Prefect from now on.

        Raises:
            Exception: the error, where it does not come from Prefect being away.
        """
        if not is_prefect_away(error):
            raise error
        self._alone = True
        why = f"Prefect's server does not answer ({type(error).__name__})"
        run.reporter.say(f"{why}: the run goes on without it, and its pages stop here")

    def progress(self, iterations: int) -> Callable[[int], None]:
        from tasks.engine.artifacts import loop_progress

        return loop_progress(iterations)
