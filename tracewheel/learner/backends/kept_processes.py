"""The processes of updates, kept from one update to the next: imports, torchrun, the process group and DeepSpeed start once.

The processes wait for orders on a socket. They end with the process that started them, after an error, and when an update
comes that is no continuation of the previous one.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tracewheel.core.errors as errors
from tracewheel.core.errors import InfrastructureError, TracewheelError

LAST_LINES = 12
SECONDS_TO_END = 40
POLL_SECONDS = 0.2
LONGEST_FOLDER = 60


class KeptProcesses:
    """Processes that carry out orders, one order at a time.

    Args:
        module: What each process runs: a module whose argument is the path of a socket; see `orders`.
        count: How many.
        stage: The stage they compute, for messages.
        variables: Environment variables of the processes, in addition to this process's.
    """

    def __init__(self, module: str, count: int, stage: str, variables: dict[str, str]) -> None:
        self._count = count
        self._stage = stage
        # The path of a socket has at most 107 characters.
        place = None if len(tempfile.gettempdir()) < LONGEST_FOLDER else "/tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="tracewheel-update-", dir=place))
        self._log = (self._folder / "log").open("w+")
        self._connections: dict[socket.socket, Iterator[str]] = {}
        address = self._folder / "orders"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(count)
            listener.settimeout(POLL_SECONDS)
            atexit.register(self.close)
            self._torchrun = subprocess.Popen(
                [
                    sys.executable,
                    *("-m", "tracewheel.learner.backends.launch", "--standalone"),
                    *(f"--nproc-per-node={count}", "--module", module, str(address)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=os.environ | variables,
            )
            try:
                self._accept(listener)
            except BaseException:
                self.close()
                raise

    def __call__(self, order: dict[str, Any]) -> None:
        """Have all processes carry out an order, in JSON types, and wait for them.

        Raises:
            TracewheelError: as in the first process that reported an error; the processes are gone.
            InfrastructureError: a process was killed or crashed; the message ends with the last lines of their log.
        """
        line = json.dumps(order).encode() + b"\n"
        try:
            for connection in self._connections:
                connection.sendall(line)
            self._await_replies()
        except (BrokenPipeError, ConnectionResetError):
            raise self._crash() from None
        except BaseException:
            self.close()
            raise

    def alive(self) -> bool:
        """Whether the processes can take an order."""
        return self._torchrun.poll() is None

    def close(self) -> None:
        """End the processes, even in the middle of an order."""
        atexit.unregister(self.close)
        for connection in self._connections:
            connection.close()
        self._connections = {}
        # torchrun ends its workers when it is terminated, but not when it is killed.
        self._torchrun.send_signal(signal.SIGTERM)
        try:
            self._torchrun.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._torchrun.kill()
            self._torchrun.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self, listener: socket.socket) -> None:
        while len(self._connections) < self._count:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if not self.alive():
                    raise self._crash() from None
                continue
            connection.setblocking(True)
            self._connections[connection] = connection.makefile("r")

    def _await_replies(self) -> None:
        lost = False
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                selector.register(connection, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(POLL_SECONDS)
                if not ready and not self.alive():
                    raise self._crash()
                for key, _ in ready:
                    replied: Any = key.fileobj
                    selector.unregister(replied)
                    line = next(self._connections[replied], None)
                    if line is None:
                        lost = True  # the others report why, or are ended by torchrun
                    elif error := json.loads(line):
                        raise _error(error)
        if lost:
            raise self._crash()

    def _crash(self) -> InfrastructureError:
        until = time.monotonic() + SECONDS_TO_END
        while self.alive() and time.monotonic() < until:
            time.sleep(POLL_SECONDS)  # torchrun notices a process that died, and ends the others
        code = self._torchrun.poll()
        self._log.seek(0)
        tail = "".join(self._log.readlines()[-LAST_LINES:]).strip() or "nothing"
        self.close()
        return InfrastructureError(
            f"the {self._stage} on {self._count} processes ended with exit code {code}; end of its log: {tail}"
        )


def _error(reply: dict[str, str]) -> TracewheelError:
    kind = getattr(errors, reply["kind"], InfrastructureError)
    raised: TracewheelError = kind(reply["message"])
    return raised


def orders(address: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """In a kept process: each order, with the function that replies to it: {} when it is done, or an error's kind and message.

    Ends when the starter closes the connection.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)

        def reply(error: dict[str, str]) -> None:
            connection.sendall(json.dumps(error).encode() + b"\n")

        with connection.makefile("r") as lines:
            for line in lines:
                yield json.loads(line), reply
