"""A Prefect server for the length of a command, where the user runs none.

Prefect can start a temporary server by itself, but leaves it behind when the command is killed. This
one watches the process that started it, and starts while that process is still importing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tracewheel.core.errors import InfrastructureError
from tracewheel.core.processes import end_with_parent, free_port
from tracewheel.core.store import disk_errors

START_SECONDS = 300.0


class LocalServer:
    """Starts a server and points PREFECT_API_URL at it; does nothing when the user has set it.

    Enter it before Prefect is imported, and `wait` before Prefect is used.

    Args:
        work_dir: Where its log goes.
        scheduling: Whether it shall start scheduled runs, which single runs have no use for.
    """

    def __init__(self, work_dir: Path, *, scheduling: bool = False) -> None:
        self._log_path = work_dir / "prefect-server.log"
        self._scheduling = scheduling
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> LocalServer:
        if os.environ.get("PREFECT_API_URL"):
            return self
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "PREFECT_UI_ENABLED": str(int(self._scheduling)), "PREFECT__SERVER_FINAL": "1"}
        if not self._scheduling:
            environment["PREFECT__SERVER_EPHEMERAL"] = "1"
        with disk_errors(self._log_path):
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            log = self._log_path.open("w")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.server", str(port), str(os.getpid())],
                stdin=subprocess.DEVNULL,
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
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _serve(port: int, parent: int) -> None:
    end_with_parent(parent)
    import uvicorn

    uvicorn.run("prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
