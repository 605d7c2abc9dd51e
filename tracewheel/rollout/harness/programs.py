"""Programs under watch: started N at a time, their output kept, each ended at its time limit.

A small process starts and reaps them (`launcher.py`). It ends them all when this process ends for any reason, and when it is
killed itself, this process kills what it had started.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.rollout.harness import launcher
from tracewheel.rollout.harness.output import OutputTail

START_SECONDS = 120.0
CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class ProgramStart:
    """What to start.

    Attributes:
        command: The program and its arguments.
        env: All variables that it gets.
        cwd: Its folder; None for ours.
        stdin: The file that it reads from its standard input; None for none.
        seconds: How long it may take.
        output_bytes: How much of its output, and of its errors, is kept.
        memory: Bytes of address space that it may have; None without a limit.
        filter: A file that it finds open as `launcher.FILTER`; None for none.
    """

    command: Sequence[str]
    env: dict[str, str]
    cwd: str | None = None
    stdin: str | None = None
    seconds: float = 600.0
    output_bytes: int = 1 << 16
    memory: int | None = None
    filter: str | None = None


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        number: The number that it was started under.
        exit_code: None where a signal ended it, or nobody knows.
        signal: The signal that ended it, 0 for none.
        killed: Why we ended it, empty where we did not.
        lost: Whether whoever started it died, so that its end is unknown.
        output: The end of what it printed.
        errors: The end of what it printed as errors.
        seconds: How long it ran.
        cpu_seconds: What it took, with its children that it waited for.
        peak_kilobytes: The most memory that it held.
    """

    number: int
    exit_code: int | None
    signal: int = 0
    killed: str = ""
    lost: bool = False
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_kilobytes: int = 0


@dataclass
class _Running:
    output: OutputTail
    errors: OutputTail
    began: float
    deadline: float
    limit: float
    killed: str = ""
    pipes: dict[int, OutputTail] = field(default_factory=dict)


class Programs:
    """Starts programs and reports their ends. One thread calls the methods, but `wake`.

    Args:
        root: A folder for the orders; removed by its owner.
        interpreter: The Python that runs the launcher; the program's own where there is something to preload.
        preload: Modules that the launcher imports; programs are then forks of it.
        path: Where such modules are looked up first.
        cwd: The launcher's folder; None for ours.
        env: The launcher's variables; None for ours.

    Raises:
        ConfigError: a module of `preload` cannot be imported.
        InfrastructureError: the launcher does not start.
    """

    def __init__(
        self,
        root: Path,
        interpreter: str = sys.executable,
        *,
        preload: Sequence[str] = (),
        path: str = "",
        cwd: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self._root, self._preload = root, tuple(preload)
        settings = json.dumps({"preload": list(preload), "path": path})
        self._arguments = [interpreter, "-u", str(Path(launcher.__file__).resolve())]
        self._rest = [str(root.resolve()), settings]
        self._cwd, self._env = cwd, env
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._running: dict[int, _Running] = {}
        self._ended: list[ProgramEnd] = []
        self.cpu_seconds = 0.0  # of all programs that have ended
        self._start_launcher()

    def __len__(self) -> int:
        """How many programs run."""
        return len(self._running)

    def start(self, number: int, start: ProgramStart) -> None:
        """Start a program under a number that no running program has."""
        if self._launcher.poll() is not None:
            self._lose_all()
            self._start_launcher()
        folder = self._root / str(number)
        folder.mkdir(exist_ok=True)
        told = {
            "command": list(start.command),
            "env": start.env,
            "cwd": start.cwd,
            "stdin": start.stdin,
            "memory": start.memory,
            "filter": start.filter,
        }
        (folder / "start.json").write_text(json.dumps(told), encoding="utf-8")
        now = time.monotonic()
        tails = OutputTail(start.output_bytes), OutputTail(start.output_bytes)
        running = _Running(*tails, now, now + start.seconds, start.seconds)
        writing = []
        for tail in tails:
            read, write = os.pipe()
            os.set_blocking(read, False)
            self._selector.register(read, selectors.EVENT_READ, (number, tail))
            running.pipes[read] = tail
            writing.append(write)
        self._running[number] = running
        try:
            socket.send_fds(self._orders, [launcher.ORDER.pack(launcher.START, number)], writing)
        except OSError:  # it has just died: found at the next poll
            pass
        finally:
            for write in writing:
                os.close(write)

    def kill(self, number: int, why: str) -> None:
        """End a running program and its group; its end is reported by `poll`."""
        running = self._running.get(number)
        if running is None or running.killed:
            return
        running.killed = why
        with suppress(OSError):
            self._orders.send(launcher.ORDER.pack(launcher.KILL, number))

    def wake(self) -> None:
        """Let a `poll` that waits return; any thread may call this."""
        with suppress(BlockingIOError, OSError):
            os.write(self._wake, b"\0")

    def poll(self, seconds: float) -> list[ProgramEnd]:
        """Wait until a program has ended, something has woken us, or the seconds are over; returns the ends.

        Raises:
            InfrastructureError: the launcher died and cannot be started again.
        """
        deadline = time.monotonic() + seconds
        while not self._ended:
            now = time.monotonic()
            self._watch_limits(now)
            until = min([deadline, *(running.deadline for running in self._running.values() if not running.killed)])
            woken = False
            for key, _ in self._selector.select(max(0.0, until - now)):
                if key.fileobj == self._woken:
                    woken = True
                    with suppress(BlockingIOError):
                        os.read(self._woken, 1 << 16)
                elif key.fileobj is self._orders:
                    self._hear()
                elif key.fd in self._selector.get_map():
                    self._read(key.fd, *key.data)
            if woken or time.monotonic() >= deadline:
                break
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """End every program and the launcher."""
        self._orders.close()
        with suppress(subprocess.TimeoutExpired):
            self._launcher.wait(CLOSE_SECONDS)
        if self._launcher.poll() is None:
            self._kill_all()
            self._launcher.kill()
            self._launcher.wait()
        for running in self._running.values():
            for descriptor in running.pipes:
                os.close(descriptor)
        self._running.clear()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)

    def _start_launcher(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._heard = b""
        self._pids: dict[int, int] = {}
        with theirs:
            self._launcher = subprocess.Popen(
                [*self._arguments, str(theirs.fileno()), *self._rest],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._cwd,
                env=self._env,
            )
        self._orders.settimeout(START_SECONDS)
        said: dict[str, Any] = {}
        with suppress(TimeoutError, ConnectionError):
            while not self._heard.endswith(b"\n") and (heard := self._orders.recv(1 << 16)):
                self._heard += heard
            said = json.loads(self._heard or b"{}")
        self._heard = b""
        if "ready" not in said:
            self._launcher.kill()
            self._launcher.wait()
            if "failed" in said:
                raise ConfigError(f"rollout.harness.preload: {said['failed']}")
            raise InfrastructureError("rollout.harness: the process that starts programs did not start")
        self._selector.register(self._orders, selectors.EVENT_READ)

    def _hear(self) -> None:
        """Read what the launcher says; at its end all programs are lost."""
        try:
            heard = self._orders.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:
            heard = b""
        if not heard:
            self._lose_all()
            self._start_launcher()
            return
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "started" in said:
                self._pids[said["started"]] = said["pid"]
            else:
                self._end(said["ended"], said)

    def _read(self, descriptor: int, number: int, tail: OutputTail) -> None:
        if not tail.read(descriptor):
            self._selector.unregister(descriptor)
            del self._running[number].pipes[descriptor]
            os.close(descriptor)

    def _end(self, number: int, said: dict[str, Any] | None) -> None:
        """A program has ended, or is lost where nothing is said of it."""
        running = self._running.pop(number)
        self._pids.pop(number, None)
        for descriptor, tail in running.pipes.items():
            tail.read(descriptor)  # what it printed last
            self._selector.unregister(descriptor)
            os.close(descriptor)
        status, cpu, peak = (said["status"], said["cpu_seconds"], said["peak_kilobytes"]) if said else (None, 0.0, 0)
        ended_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        self.cpu_seconds += cpu
        self._ended.append(
            ProgramEnd(
                number,
                os.waitstatus_to_exitcode(status) if status is not None and not ended_by else None,
                ended_by,
                running.killed,
                said is None,
                running.output.text(),
                running.errors.text(),
                time.monotonic() - running.began,
                cpu,
                peak,
            )
        )

    def _watch_limits(self, now: float) -> None:
        for number, running in self._running.items():
            if not running.killed and now >= running.deadline:
                self.kill(number, f"over {running.limit:g} s (rollout.harness.seconds)")

    def _lose_all(self) -> None:
        """The launcher has died: kill what it had started, and report it as lost."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._orders)
        self._orders.close()
        self._launcher.kill()
        self._launcher.wait()
        self._kill_all()
        for number in list(self._running):
            self._end(number, None)

    def _kill_all(self) -> None:
        for pid in self._pids.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._pids.clear()


def find_program(command: Sequence[str], cwd: str | None, pythons: Sequence[str], path: str) -> list[str]:
    """The command with the file that it starts.

    Args:
        command: The program and its arguments.
        cwd: The folder that it starts in; None for ours.
        pythons: Names of the interpreter that runs Tracewheel.
        path: Where other names are looked up.

    Raises:
        ConfigError: there is no such program, or no such script.
    """
    folder = Path(cwd or ".")
    if not folder.is_dir():
        raise ConfigError(f"rollout.harness.cwd: {folder} is no folder")
    name, *rest = command
    found: str | None = sys.executable if name in pythons else None
    if found is None and "/" in name:
        own = folder / name
        # A link stays one: the interpreter of a virtual environment is found by where its link is.
        found = str(own.absolute()) if own.is_file() and os.access(own, os.X_OK) else None
    elif found is None:
        found = shutil.which(name, path=path)
    if found is None:
        raise ConfigError(
            f"rollout.harness.command: there is no program {name!r} that can be run; install it, or give its path"
        )
    if rest and rest[0].endswith(".py") and "{" not in rest[0] and not (folder / rest[0]).is_file():
        raise ConfigError(f"rollout.harness.command: there is no file {rest[0]} in {folder.resolve()}; set rollout.harness.cwd")
    return [found, *rest]
