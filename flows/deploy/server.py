"""A Prefect server for the length of a command, where the user runs none.

Prefect can start a temporary server by itself, but leaves it behind when the command is killed. This
one watches the process that started it, and starts while that process is still importing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.processes import end_with_parent, exit_at_once, free_port, is_free_port
from tracewheel.core.stopping import SIGNALS
from tracewheel.core.store import disk_errors, write_whole

START_SECONDS = 300.0
GRACE_SECONDS = 3
PORT = 4200  # Prefect's own
PORT_FILE = ".prefect/port"
# A server whose process was killed ends within a second; whoever starts the next one at once waits for that.
RELEASE_SECONDS = 1.5
# A schedule's history is in its database: it waits longer for the server of a `deploy` that has just been killed.
SCHEDULE_RELEASE_SECONDS = 15.0
# SQLite is for one server: who finds the folder's in use gets one of its own, which goes with it.
HOME, MEMO, DATABASE = "PREFECT_HOME", "PREFECT_SERVER_MEMO_STORE_PATH", "PREFECT_API_DATABASE_CONNECTION_URL"


def choose_port(work_dir: Path, wanted: int | None, source: str = "--port") -> int:
    """The port of a folder's server: the wanted one, else that of its last start, else Prefect's own, else a free one.

    Args:
        work_dir: The folder, which remembers the port.
        wanted: The port that the user asks for.
        source: Which option or setting asks for it.

    Raises:
        ConfigError: the wanted port is no port, or taken.
    """
    if wanted is not None:
        if not 1 <= wanted <= 65535:
            raise ConfigError(f"{source} {wanted}: give a port from 1 to 65535")
        if not _comes_free(wanted):
            raise ConfigError(f"{source} {wanted}: another program listens there; give another port, or end that program")
        return wanted
    with contextlib.suppress(OSError, ValueError):
        if _comes_free(kept := int((work_dir / PORT_FILE).read_text())):
            return kept
    return PORT if is_free_port(PORT) else free_port()


def _comes_free(port: int) -> bool:
    deadline = time.monotonic() + RELEASE_SECONDS
    while not is_free_port(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


class LocalServer:
    """Starts a server and points PREFECT_API_URL at it; does nothing when the user has set it.

    Enter it before Prefect is imported, and `wait` before Prefect is used.

    Args:
        work_dir: Where its log goes.
        scheduling: Whether it shall start scheduled runs and show its pages, which single runs have no use for.
        port: Where it listens; any free port without it. The folder remembers the port.
    """

    def __init__(self, work_dir: Path, *, scheduling: bool = False, port: int | None = None) -> None:
        self._work_dir = work_dir
        self._log_path = work_dir / "prefect-server.log"
        self._scheduling = scheduling
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> LocalServer:
        if os.environ.get("PREFECT_API_URL"):
            return self
        port = self._port or free_port()
        self.address = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "PREFECT_UI_ENABLED": str(int(self._scheduling)), "PREFECT__SERVER_FINAL": "1"}
        environment["PREFECT_UI_API_URL"] = f"{self.address}/api"
        if not self._scheduling:
            environment["PREFECT__SERVER_EPHEMERAL"] = "1"
        with disk_errors(self._log_path):
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            log = self._log_path.open("a")
            if self._port:
                (self._work_dir / PORT_FILE).parent.mkdir(exist_ok=True)
                write_whole(self._work_dir / PORT_FILE, f"{port}\n")
        patience = str(SCHEDULE_RELEASE_SECONDS if self._scheduling else RELEASE_SECONDS)
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.deploy.server", str(port), str(os.getpid()), patience],
                stdin=subprocess.PIPE,  # its end tells the server to end
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        os.environ["PREFECT_API_URL"] = f"{self.address}/api"
        return self

    def wait(self) -> None:
        """Wait until the server answers.

        Raises:
            InfrastructureError: it does not start.
        """
        if self._process is None:
            return
        import httpx

        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(timeout=10) as client:
            while time.monotonic() < deadline and self._process.poll() is None:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.address}/api/health").is_success:
                        return
                time.sleep(0.1)
        raise InfrastructureError(f"the local Prefect server did not come up; its log is {self._log_path}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._process is None:
            return
        os.environ.pop("PREFECT_API_URL", None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def _database(patience: float) -> Iterator[Path | None]:
    """Hold the database of the folder; where another server has it, set a home of this server's own, and yield its path."""
    home = os.environ.get(HOME)
    if not home or DATABASE in os.environ:
        yield None
        return
    lock, deadline = Path(home, "server.lock"), time.monotonic() + patience
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    while time.monotonic() < deadline:
        with hold(lock) as held:
            if held:
                yield None
                return
        time.sleep(0.2)
    own = Path(home, f"beside-{os.getpid()}")
    os.environ |= {HOME: str(own), MEMO: str(own / "memo_store.toml")}
    yield own


def _serve(port: int, parent: int, patience: float) -> None:
    """Serve until the standard input ends.

    Signals are left to the parent: they come to the whole group, and a flow that ends has yet to tell the server its state.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with _database(patience) as own_home:

        def end_at_once() -> None:
            if own_home:
                shutil.rmtree(own_home, ignore_errors=True)
            exit_at_once()

        end_with_parent(parent, end_at_once)
        import uvicorn

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        config = uvicorn.Config(
            "prefect.server.api.server:create_app",
            factory=True,
            host="127.0.0.1",
            port=port,
            log_level="error",
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        server = Server(config)

        def end() -> None:
            sys.stdin.buffer.read()
            server.should_exit = True

        threading.Thread(target=end, name="end", daemon=True).start()
        server.run()
        sys.stdout.flush()
        if own_home:
            shutil.rmtree(own_home, ignore_errors=True)
        os._exit(0 if server.started else 1)  # all is closed; the interpreter's own clean-up takes seconds here


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
