"""The process of a bridge: requests and answers as lines of JSON, with a time limit for each."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel import BridgeFailure

RUNNER = Path(__file__).parent / "runners" / "run.py"
ERRORS_SHOWN = 400
END_SECONDS = 5.0


class BridgeProcess:
    """A bridge that runs, for one episode.

    Args:
        python: The Python of the other project's environment.
        bridge: Which script in `runners/`.
        folder: Where it runs; modules are found there too.
        env: Variables beside ours.

    Raises:
        BridgeFailure: it cannot be started.
    """

    def __init__(self, python: str, bridge: str, folder: str | None, env: Mapping[str, str]) -> None:
        import os

        self._name = f"bridge {bridge}"
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (it lives as long as this)
        ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        try:
            self._process = subprocess.Popen(
                [python, str(RUNNER), bridge],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=folder,
                env=ours | dict(env),
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        except OSError as error:
            raise BridgeFailure(f"{self._name}: {python} cannot be started: {error}") from error
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()
        # A process that nobody speaks to any more ends, also where an episode was given up.
        self._end = weakref.finalize(self, _end, self._process)

    def ask(self, do: str, seconds: float, **request: Any) -> Any:
        """Have something done.

        Raises:
            BridgeFailure: it raised there, took longer than `seconds`, or the process ended.
        """
        if not self._end.alive:
            raise BridgeFailure(f"{self._name}: {do}: the process was ended before")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # one that has ended is found by its missing answer
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise BridgeFailure(f"{self._name}: {do} took longer than {seconds:g} s") from None
        if not line:
            code = self._process.wait(END_SECONDS)
            raise BridgeFailure(f"{self._name}: {do}: the process ended with exit code {code}{self._said()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise BridgeFailure(f"{self._name}: {do}: {answer['failed']}")
        return answer["ok"]

    def close(self) -> None:
        """End the process, and those that it started."""
        self._end()

    def _said(self) -> str:
        self._errors.seek(0)
        text = self._errors.read()[-ERRORS_SHOWN:].strip()
        return f"; its error output ends: {text}" if text else ""


def _read(process: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def _end(process: subprocess.Popen[str]) -> None:
    import os
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
