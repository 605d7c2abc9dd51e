"""Fleets: how rollout workers are started, watched and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from tracewheel.config import WorkerSections
from tracewheel.config.placement import visible
from tracewheel.core.errors import InfrastructureError, InputError
from tracewheel.core.store import disk_errors, write_whole
from tracewheel.rollout.trajectory_queue import TrajectoryQueue
from tracewheel.rollout.worker_process import BAD_INPUT

MOST_DEATHS = 5
SILENT_SECONDS = 900.0
CHECK_SECONDS = 0.5
GRACE_SECONDS = 5.0
LAST_WORDS = 2000


class Fleet(Protocol):
    """The rollout workers of a run."""

    def start(self) -> None:
        """Start the workers; they may still be loading when it returns."""
        ...

    def check(self) -> None:
        """Replace dead workers and return their leases. Call it often.

        Raises:
            InfrastructureError: they die repeatedly without handing anything in.
            InputError: the profile or its files are wrong.
        """
        ...

    def stop(self) -> None:
        """Stop all workers; none is left when it returns. May be called again."""
        ...


class WatchedFleet:
    """A running fleet that a thread checks, so that updates and evaluations may take their time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        try:
            fleet.start()
        except BaseException:
            fleet.stop()
            raise
        self._thread = threading.Thread(target=self._watch, name="fleet", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the fleet's last check, if any."""
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Stop the fleet. May be called again."""
        self._stopping.set()
        self._thread.join()
        self._fleet.stop()

    def _watch(self) -> None:
        while not self._stopping.wait(CHECK_SECONDS):
            try:
                self._fleet.check()
            except Exception as error:  # raised again by the next `check`
                self._failure = error
                return


class ConsecutiveDeaths:
    """Counts the workers' deaths since anything was last handed in.

    Args:
        queue: Where the workers hand in their groups.
    """

    def __init__(self, queue: TrajectoryQueue) -> None:
        self._queue = queue
        self._handed_in = 0
        self._count = 0

    def add(self) -> int:
        """Count a death; returns the number of them without a group handed in between."""
        handed_in = self._queue.handed_in()
        self._count = 1 if handed_in > self._handed_in else self._count + 1
        self._handed_in = handed_in
        return self._count


@dataclass
class _Place:
    """One worker's place and its present process."""

    log: Path
    cards: tuple[int, ...]
    name: str
    process: subprocess.Popen[bytes]


class LocalFleet:
    """Worker processes on this machine. Their leases are returned when they die or fall silent.

    Args:
        config: The profile.
        queue: Where the workers get their orders.
        logs: The folder for what they print, and for the profile as they see it.
    """

    def __init__(self, config: WorkerSections, queue: TrajectoryQueue, logs: Path) -> None:
        assert config.rollout.workers.kind == "local"
        self._queue = queue
        self._logs = logs
        self._profile = logs / "profile.yaml"
        self._workers = config.rollout.workers
        self._cards = config.placement.workers
        self._config = config.model_copy(update={"threads": self._workers.threads, "placement": config.placement.inside_worker})
        self._places: list[_Place] = []
        self._deaths = ConsecutiveDeaths(queue)

    def start(self) -> None:
        write_whole(self._profile, yaml.safe_dump(self._config.model_dump(mode="json"), sort_keys=False))
        for number in range(self._workers.count):
            log = self._logs / f"worker-{number}.log"
            cards = self._cards[number] if self._cards else ()
            self._places.append(_Place(log, cards, *self._launch(log, cards)))

    def check(self) -> None:
        silent = self._queue.expire(SILENT_SECONDS)
        for place in self._places:
            if place.name in silent:
                place.process.kill()
                place.process.wait()
            code = place.process.poll()
            if code is None:
                continue
            self._queue.release(place.name)
            self._count_death(place, code)
            place.name, place.process = self._launch(place.log, place.cards)

    def stop(self) -> None:
        self._queue.end()
        processes = [place.process for place in self._places]
        deadline = time.monotonic() + GRACE_SECONDS
        for ending in (None, signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                if ending is not None and process.poll() is None:
                    process.send_signal(ending)
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=max(0.0, deadline - time.monotonic()))
            deadline = time.monotonic() + GRACE_SECONDS
        for place in self._places:
            self._queue.release(place.name)
        self._places = []

    def pids(self) -> Iterator[int]:
        """The process ids of the workers."""
        return (place.process.pid for place in self._places)

    def _launch(self, log: Path, cards: tuple[int, ...]) -> tuple[str, subprocess.Popen[bytes]]:
        name = f"{log.stem}-{uuid.uuid4().hex[:12]}"
        command = [
            sys.executable,
            "-m",
            "tracewheel.rollout.worker_process",
            self._queue.path,
            self._profile,
            name,
            os.getpid(),
        ]
        with disk_errors(log), log.open("ab") as stream:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": str(self._workers.threads)} | visible(cards),
            )
        return name, process

    def _count_death(self, place: _Place, code: int) -> None:
        """Give up when workers die repeatedly without handing anything in."""
        deaths = self._deaths.add()
        words = place.log.read_text(errors="replace")[-LAST_WORDS:].strip() or "it printed nothing"
        if code == BAD_INPUT:
            raise InputError(f"rollout worker: {words.splitlines()[-1]}")
        if deaths >= MOST_DEATHS:
            raise InfrastructureError(
                f"rollout workers died {deaths} times without handing anything in, the last with exit code {code}; "
                f"{place.log} ends: {words}"
            )
