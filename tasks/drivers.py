"""How a run obtains the results of its stages: through Prefect, in this process, or from the store alone."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tracewheel.core.store import Entry

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from tasks.stage import Call, StageTask


class NotStored(Exception):
    """A stage's result is needed and not stored."""


class Driver(Protocol):
    """Obtains the results of stages for a run.

    Attributes:
        planning: Nothing is made and nothing is written.
    """

    planning: bool

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
        """The entry of a call: reused, or made now."""
        ...

    def begin(self, stage: StageTask[Any], call: Call) -> Callable[[], Entry]:
        """Begin a call, where the driver can do so, and return at once. The result waits for the entry."""
        ...

    def missing(self, label: str) -> None:
        """Note that something other than a stage's result is needed and not there yet.

        Raises:
            NotStored: the driver reads the store alone.
        """
        ...

    def progress(self, iterations: int) -> Callable[[int], None]:
        """Show the progress of a loop; call the returned function after each iteration."""
        ...


class PrefectDriver:
    """Runs each stage as a Prefect task, inside a flow."""

    planning = False

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
        call.run.reporter.start(call.label)
        started = time.perf_counter()
        stored = call.stored(stage.stage)
        task = stage.task.with_options(task_run_name=call.label, refresh_cache=stored is None)
        state: State[dict[str, Any]] = task(call, return_state=True)
        return self._end(call, stored, state, time.perf_counter() - started)

    def begin(self, stage: StageTask[Any], call: Call) -> Callable[[], Entry]:
        stored = call.stored(stage.stage)
        future = stage.task.with_options(task_run_name=call.label, refresh_cache=stored is None).submit(call)

        def entry() -> Entry:
            started = time.perf_counter()
            future.wait()
            return self._end(call, stored, future.state, time.perf_counter() - started)

        return entry

    def missing(self, label: str) -> None: ...

    def progress(self, iterations: int) -> Callable[[int], None]:
        from tasks.artifacts import LoopProgress

        return LoopProgress(iterations).reached

    @staticmethod
    def _end(call: Call, stored: Entry | None, state: State[dict[str, Any]], seconds: float) -> Entry:
        shown = "Cached" if stored and state.is_completed() else state.name or state.type.value
        call.run.reporter.end(call.label, shown, seconds)
        record = state.result()
        return Entry(**{**record, "path": call.run.store.root / record["path"], "reused": stored is not None})


class OneByOne(ABC):
    """A driver whose calls begin when their result is needed."""

    @abstractmethod
    def get(self, stage: StageTask[Any], call: Call) -> Entry: ...

    def begin(self, stage: StageTask[Any], call: Call) -> Callable[[], Entry]:
        return functools.partial(self.get, stage, call)

    def progress(self, iterations: int) -> Callable[[int], None]:
        return lambda iteration: None


class DirectDriver(OneByOne):
    """Runs each stage in this process, without Prefect."""

    planning = False

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
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

    def missing(self, label: str) -> None: ...


class StoredDriver(OneByOne):
    """Reads the store; a stage that is not stored raises `NotStored`."""

    planning = True

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
        stored = call.stored(stage.stage)
        if stored is None:
            raise NotStored(call.label)
        return stored

    def missing(self, label: str) -> None:
        raise NotStored(label)
