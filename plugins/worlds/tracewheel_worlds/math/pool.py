"""math-verify behind a process boundary: a few worker processes, each killed when a comparison takes too long.

math-verify's own time limit is a signal, which Python allows in the main thread alone, and sympy may run for ever on a few
characters. A worker has no secrets in its environment, a limit of memory, and writes no files.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel import untimed

WORKERS = 2
START_SECONDS, CALL_SECONDS = 120.0, 10.0
LONGEST = 4_000
PACKAGES = Path(__file__).parents[2]


class Comparison(NamedTuple):
    """Whether two answers are equal, whether the agent's could be read, and what went wrong."""

    equal: bool
    read: bool
    why: str = ""


class _Worker:
    """One process; in use by one thread at a time."""

    def __init__(self) -> None:
        kept = {
            name: os.environ[name] for name in ("PATH", "LANG", "HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH") if name in os.environ
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tracewheel_worlds.math.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": os.pathsep.join([str(PACKAGES), *filter(None, sys.path)])},
            start_new_session=True,
        )
        self._read = b""
        self.receive(START_SECONDS)

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next line.

        Raises:
            TimeoutError: it does not come in time.
            ChildProcessError: the process ended.
        """
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._read:
            if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"no answer in {seconds:g} seconds")
            if not (some := os.read(self._process.stdout.fileno(), 65536)):
                raise ChildProcessError(
                    f"the process for mathematics ended with {self._process.wait()}; is math-verify installed?"
                )
            self._read += some
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class MathPool:
    """Compares answers in worker processes, from any thread; a worker is started when it is first needed."""

    def __init__(self, workers: int = WORKERS, seconds: float = CALL_SECONDS) -> None:
        self._seconds = seconds
        self._free = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    def compare(
        self,
        gold: str,
        answer: str,
        *,
        formats: tuple[str, ...] = ("latex", "expr"),
        digits: int = 6,
        strict: bool = True,
        sets: bool = False,
    ) -> Comparison:
        """Compare two answers by math-verify.

        Args:
            gold: The right answer.
            answer: The agent's. One longer than `LONGEST`, one that makes a worker hang, and one that makes it end, are wrong.
            formats: What is looked for in them: `latex`, `expr`.
            digits: Numbers are rounded to so many.
            strict: Whether the names of variables count, and sets are no tuples.
            sets: Whether an interval may be written as a relation.

        Raises:
            ValueError: the right answer is not read as mathematics, or not in time.
            ChildProcessError: no worker can be started.
        """
        if len(answer) > LONGEST:
            return Comparison(False, False, f"longer than {LONGEST} characters")
        asked = {"gold": gold, "answer": answer, "formats": list(formats), "digits": digits, "strict": strict, "sets": sets}
        with untimed():  # others' answers may take long
            self._free.acquire()
        try:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            worker = worker or _Worker()
            try:
                found = self._ask(worker, asked)
            except BaseException:
                worker.end()
                raise
            if found.why in (HUNG, ENDED, "MemoryError"):
                worker.end()
            else:
                with self._lock:
                    self._idle.append(worker)
            return found
        finally:
            self._free.release()

    def _ask(self, worker: _Worker, asked: dict[str, Any]) -> Comparison:
        try:
            worker.send(asked)
            if not worker.receive(self._seconds)["gold"]:
                worker.receive(self._seconds)
                raise ValueError(f"the right answer {asked['gold'][:80]!r} is not read as mathematics")
        except TimeoutError as error:
            raise ValueError(f"the right answer {asked['gold'][:80]!r} is not read in {self._seconds:g} seconds") from error
        try:
            found = worker.receive(self._seconds)
        except TimeoutError:
            return Comparison(False, False, HUNG)
        except ChildProcessError:
            return Comparison(False, False, ENDED)
        return Comparison(found["equal"], found["read"], found.get("why", ""))

    def close(self) -> None:
        """End the idle workers; the others end with this process."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()


HUNG, ENDED = "it took too long to compare", "comparing it ended the process"


def math_pool() -> MathPool:
    """This process's pool."""
    return _pool_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _pool_of(process: int) -> MathPool:
    pool = MathPool()
    atexit.register(pool.close)
    return pool
