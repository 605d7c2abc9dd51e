"""One row for each run: how it stands, what it gained, what it cost. Rows are kept until a file of the run changes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.run_record import CONFIG_FILE, LINEAGE_FILE, LOOP_FILE, SUMMARY_FILE
from tracewheel.core.run_state import CRASHED, RUNNING, STATE_FILE
from tracewheel.dashboard.library import Library, Place, sign
from tracewheel.evaluation.gate import GATE_FILE
from tracewheel.evaluation.wording import gain_of
from tracewheel.report.doctor.finding import SEVERITIES, worst

FINDINGS_FILE = "doctor.json"
READ = (LINEAGE_FILE, STATE_FILE, SUMMARY_FILE, GATE_FILE, FINDINGS_FILE, LOOP_FILE)
AFTER = "rl"
LOOKS_EVERY = 1.0  # seconds: a page of many parts looks at the files once
Signs = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class RunRow:
    """A run at a glance.

    Attributes:
        state: `running`, `crashed`, `promoted`, `refused` and the other states of a run; `complete` or `incomplete` where
            an earlier version wrote none.
        message: What the state says of itself.
        stage: What a run that goes on is at.
        started, ended: ISO 8601; "" where they are not known.
        baseline: The policy to beat.
        before, after: Greedy success on held-out tasks of the baseline and of the policy after RL.
        gain: The gain of the gate's verdict: of a promotion the one to expect.
        seconds, tokens: What was spent, reused results included.
        money: In `currency`, where prices are set.
        per_point: Seconds, tokens and money for each point gained.
        worst: The doctor's worst severity; None where it has not looked.
        iterations: Iterations that are complete.
        parent: The run whose champion this one started from.
        damaged: What of the record cannot be read.
    """

    place: str
    run_id: str
    name: str = ""
    state: str = "incomplete"
    message: str = ""
    stage: str = ""
    started: str = ""
    ended: str = ""
    process: int | None = None
    verdict: str = ""
    baseline: str = ""
    before: float | None = None
    after: float | None = None
    before_interval: tuple[float, ...] = ()
    after_interval: tuple[float, ...] = ()
    harder: float | None = None
    gain: float | None = None
    gain_interval: tuple[float, ...] = ()
    seconds: float | None = None
    tokens: int | None = None
    money: float | None = None
    currency: str = ""
    per_point: dict[str, float | None] = field(default_factory=dict)
    worst: str | None = None
    iterations: int = 0
    version: str = ""
    parent: str = ""
    damaged: str = ""

    @property
    def is_running(self) -> bool:
        """Whether a process is at it."""
        return self.state == RUNNING

    def since(self, now: datetime | None = None) -> float | None:
        """Seconds from its start to its end, or to now."""
        with contextlib.suppress(ValueError):
            end = datetime.fromisoformat(self.ended) if self.ended else (now or clock.now())
            return (end - datetime.fromisoformat(self.started)).total_seconds()
        return None


class RunRows:
    """The rows of a library's runs, read again where a file has changed."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[tuple[str, str], tuple[Signs, RunRow]] = {}
        self._all: list[RunRow] = []
        self._looked = 0.0
        self._lock = threading.Lock()

    def all(self) -> list[RunRow]:
        """All rows, the latest start first."""
        with self._lock:
            if time.monotonic() - self._looked > LOOKS_EVERY:
                self._all = sorted(self._rows(), key=lambda row: (row.started, row.run_id), reverse=True)
                self._looked = time.monotonic()
            return self._all

    def of(self, place: str, run_id: str) -> RunRow:
        """The row of one run, as it is now."""
        return self._row(self._library.place(place), run_id)

    def _rows(self) -> Iterator[RunRow]:
        runs = list(self._library.runs())
        gone = self._known.keys() - {(place.name, run_id) for place, run_id in runs}
        for key in gone:
            del self._known[key]
        for place, run_id in runs:
            yield self._row(place, run_id)

    def _row(self, place: Place, run_id: str) -> RunRow:
        folder = place.path / run_id
        signs = tuple(sign(folder / name) for name in READ)
        known = self._known.get((place.name, run_id))
        if known is None or known[0] != signs:
            ending = self._library.ending
            known = signs, read_row(place.name, folder, ending if ending.get("run_id") == run_id else None)
            self._known[place.name, run_id] = known
        row = known[1]
        if row.is_running and not is_alive(row.process, read_host(folder)):
            return RunRow(**{**vars(row), "state": CRASHED})
        return row


def read_row(place: str, folder: Path, ending: dict[str, Any] | None = None) -> RunRow:
    """The row of a run from its record, as far as that can be read; `ending` is its summary where it is about to end."""
    found: dict[str, Any] = {"place": place, "run_id": folder.name}
    damaged = []
    for file, take in (
        (LINEAGE_FILE, _lineage),
        (SUMMARY_FILE, _summary),
        (GATE_FILE, _gate),
        (STATE_FILE, _state),
        (FINDINGS_FILE, _findings),
        (LOOP_FILE, _loop),
    ):
        if not (folder / file).is_file():
            continue
        try:
            found |= take(read_json(folder / file))
        except (DataError, KeyError, TypeError, AttributeError, ValueError) as flaw:  # a record that somebody damaged
            damaged.append(f"{file}: {flaw}" if isinstance(flaw, DataError) else f"{file}: not as this version writes it")
    if ending:
        found |= _summary(ending) | {"state": found.get("verdict") or "complete", "message": "", "stage": ""}
    if found.get("state") in (None, "incomplete") and (folder / SUMMARY_FILE).is_file():
        found["state"] = found.get("verdict") or "complete"
    found["name"] = found.get("name") or _name(folder)
    baseline = found.get("baseline", "")
    for key in ("before", "before_interval"):
        found[key] = (found.pop(f"_{key}", None) or {}).get(baseline)
    found["before_interval"] = tuple(found["before_interval"] or ())
    return RunRow(**found, damaged="; ".join(damaged))


def _name(folder: Path) -> str:
    """The profile's name, which is its first line, for a run that has no summary yet; parsing all of it would take long."""
    with contextlib.suppress(OSError, UnicodeDecodeError), (folder / CONFIG_FILE).open(encoding="utf-8") as file:
        key, _, name = file.readline(200).partition(":")
        return name.strip().strip("'\"") if key == "name" else ""
    return ""


def _lineage(values: dict[str, Any]) -> dict[str, Any]:
    parent = values.get("parent") or {}
    return {"started": str(values.get("started") or ""), "parent": str(parent.get("run_id") or "")}


def _summary(values: dict[str, Any]) -> dict[str, Any]:
    intervals = values.get("intervals") or {}
    worth = values.get("worth") or {}
    cost = worth.get("cost") or {}
    return {
        "name": str(values.get("name") or ""),
        "after": (values.get("success") or {}).get(AFTER),
        "after_interval": tuple((intervals.get("success") or {}).get(AFTER) or ()),
        "harder": (values.get("harder") or {}).get(AFTER),
        "_before": values.get("success") or {},
        "_before_interval": intervals.get("success") or {},
        "seconds": sum((values.get("seconds") or {}).values()) or None,
        "tokens": sum((values.get("tokens") or {}).values()) or None,
        "money": cost.get("money"),
        "currency": str(cost.get("currency") or ""),
        "per_point": worth.get("per_point") or {},
        "version": str(values.get("model_version") or ""),
    }


def _gate(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": str(values.get("verdict") or ""),
        "baseline": str(values.get("baseline") or ""),
        "gain": gain_of(values),
        "gain_interval": tuple(values.get("interval") or ()),
    }


def _state(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "state": str(values.get("state") or "incomplete"),
        "message": str(values.get("message") or ""),
        "stage": str(values.get("stage") or ""),
        "ended": str(values.get("ended") or ""),
        "process": values.get("process"),
    }


def _findings(values: dict[str, Any]) -> dict[str, Any]:
    severities = [one["severity"] for one in values["findings"]]
    return {"worst": worst([one for one in severities if one in SEVERITIES and one != "not_checked"])}


def _loop(values: dict[str, Any]) -> dict[str, Any]:
    return {"iterations": len(values["iterations"])}


def read_host(folder: Path) -> str:
    """The machine that a run's process is on; "" where the record does not say it."""
    with contextlib.suppress(DataError, AttributeError):
        return str(read_json(folder / STATE_FILE).get("host") or "")
    return ""


def is_alive(process: int | None, host: str) -> bool:
    """Whether a process of this machine lives. Of another machine nothing is known, so its runs count as alive.

    The store's lock says the same, but trying it would hold it for a moment, in which a run could not start.
    """
    if process is None or (host and host != socket.gethostname()):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
