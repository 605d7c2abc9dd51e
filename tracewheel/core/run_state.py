"""How a run stands: `state.json` in its record.

`running` is written when the run has the store, with the stage that it is at; the other states are ends. A run that was killed
still says `running`, but nobody holds the store then: that is `crashed`, and the next one who holds the store writes it down.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import write_whole

STATE_FILE = "state.json"
GIVE_UP_AFTER = 3  # failures in a row at one stage: a third time is no accident
RUNNING, CRASHED, STOPPED, FAILED, SKIPPED = "running", "crashed", "stopped", "failed", "skipped"
PROMOTED, REFUSED, AWAITING = "promoted", "refused", "awaiting approval"
NEXT = {
    RUNNING: "wait for it; SIGTERM stops it at the next safe point",
    CRASHED: "`tracewheel retrain` or the next tick resumes it",
    STOPPED: "`tracewheel retrain` or the next tick resumes it",
    FAILED: "mend what the message names; `tracewheel retrain` resumes it",
    "incomplete": "`tracewheel retrain` resumes it",
}
NO_FAILURES: dict[str, Any] = {"stage": "", "times": 0}


def describe(record: Path, *, held: bool) -> dict[str, Any]:
    """The state of an incomplete run for people: `state`, `message`, `stage`, `starts`, and what to do `next`.

    Args:
        record: The folder of its record.
        held: Whether a process holds the store.
    """
    values = RunState(record).read()
    state = values.get("state", "incomplete")
    if state == RUNNING and not held:
        state = CRASHED
    message = values.get("message", "")
    if state == CRASHED and not message:
        message = _gone(values)
    shown = {name: values.get(name) for name in ("stage", "starts", "process", "host")}
    return {"state": state, "message": message, **shown, "next": NEXT.get(state, "")}


class RunState:
    """Reads and writes the state of one run; only who holds the store writes.

    Args:
        record: The folder of the run's record.
    """

    def __init__(self, record: Path) -> None:
        self._path = record / STATE_FILE
        self._values: dict[str, Any] | None = None  # while the run is this process's

    def read(self) -> dict[str, Any]:
        """The state as JSON types; empty for a run of an earlier version, or whose file is damaged."""
        with contextlib.suppress(DataError):
            found = read_json(self._path)
            return found if isinstance(found, dict) else {}
        return {}

    def begin(self, flow_run: str | None = None) -> None:
        """The run begins, or goes on. Its starts are counted, and the failures in a row at the same stage."""
        self.crashed()
        before = self.read()
        self._write(
            {
                "state": RUNNING,
                "message": "",
                "stage": "",
                "starts": before.get("starts", 0) + 1,
                "failures": before.get("failures", NO_FAILURES),
                "started": clock.written(),
                "process": os.getpid(),
                "host": socket.gethostname(),
                "flow_run": flow_run,
            }
        )

    @property
    def stage(self) -> str:
        """The stage that the run is at, or was at when it ended; empty before the first."""
        return str((self._values or self.read()).get("stage", ""))

    def at(self, stage: str) -> None:
        """The run is at this stage."""
        if self._values is not None:
            self._write({**self._values, "stage": stage})

    def gives_up(self, most: int = GIVE_UP_AFTER) -> str | None:
        """Why a run that has failed at one stage so often is not tried again by itself; None for others."""
        failures = self.read().get("failures", NO_FAILURES)
        if failures["times"] < most:
            return None
        return f"failed {failures['times']} times in a row at {failures['stage']}"

    def end(self, state: str, message: str) -> None:
        """The run has ended. Nothing is written for a run that never had the store, or that has left no record."""
        if self._values is None or not self._path.parent.is_dir():
            return
        values = {**self._values, "state": state, "message": message, "ended": clock.written()}
        if state != STOPPED:
            values["failures"] = _one_more(values) if state == FAILED else NO_FAILURES
        self._write(values)
        self._values = None

    def settled(self, state: str, message: str) -> None:
        """What a run that has ended awaited has come: its new end."""
        before = self.read()
        if before.get("state") == AWAITING:
            write_whole(self._path, _json({**before, "state": state, "message": message}))

    def crashed(self) -> None:
        """Write down that the process of a run that says `running` is gone; for who holds the store."""
        before = self.read()
        if before.get("state") == RUNNING and self._values is None:
            ended = {**before, "state": CRASHED, "message": _gone(before), "failures": _one_more(before)}
            write_whole(self._path, _json(ended))

    def _write(self, values: dict[str, Any]) -> None:
        self._values = values
        write_whole(self._path, _json(values))


def _gone(values: dict[str, Any]) -> str:
    where = f" at {values['stage']}" if values.get("stage") else ""
    return f"its process ended{where} without a word"


def _one_more(values: dict[str, Any]) -> dict[str, Any]:
    """The failures in a row at the stage that the run was at; one before the first stage counts for none."""
    before: dict[str, Any] = values.get("failures", NO_FAILURES)
    if not values["stage"]:
        return before
    return {"stage": values["stage"], "times": before["times"] + 1 if before["stage"] == values["stage"] else 1}


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"
