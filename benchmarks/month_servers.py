"""The servers of a simulated month, as processes that can be killed, and its small disk."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import environment

ROOT = Path(__file__).parents[1]
DISK = "700m"


@dataclass
class Place:
    """Where a month's files are.

    Attributes:
        work: The folder of all.
        port, mlflow_port: Of the two servers.
    """

    work: Path
    port: int
    mlflow_port: int

    @property
    def logs(self) -> Path:
        return self.work / "logs"

    @property
    def disk(self) -> Path:
        """The small disk: a file system of its own where that is allowed."""
        return self.work / "disk"

    @property
    def run(self) -> Path:
        return self.disk / "run"

    @property
    def profile(self) -> Path:
        return self.work / "month.yaml"


class Servers:
    """The MLflow server and `tracewheel deploy`, as processes that can be killed and started again."""

    def __init__(self, place: Place, interval: float, options: list[str]) -> None:
        self.place, self.interval, self.options = place, interval, options
        self.mlflow: subprocess.Popen[bytes] | None = None
        self.deploy: subprocess.Popen[bytes] | None = None

    def start_mlflow(self) -> None:
        store = self.place.work / "mlflow"
        store.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.place.mlflow_port)]
        command += ["--backend-store-uri", f"sqlite:///{store}/mlflow.db", "--artifacts-destination", str(store / "artifacts")]
        # Its own jobs (scoring, archives) are processes of their own that nothing here needs.
        self.mlflow = self._spawn([*command, "--workers", "1"], "mlflow.log", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")
        wait_for(lambda: answers(f"http://127.0.0.1:{self.place.mlflow_port}/health"), 120, "the MLflow server", self.mlflow)

    def start_deploy(self) -> None:
        command = [sys.executable, "-m", "flows.cli", "deploy", str(self.place.profile), "--run-dir", str(self.place.run)]
        # The tick resumes what was killed and looks at days without traces; the trigger need not wait for it.
        when = ["--interval", str(self.interval), "--on-new-traces", str(self.place.logs), "--min-new", "1", *self.options]
        self.deploy = self._spawn([*command, *when, "--port", str(self.place.port)], "deploy.log")
        wait_for(lambda: answers(f"{self.api}/health"), 240, "the Prefect server", self.deploy)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.place.port}/api"

    def runs(self) -> list[dict[str, Any]]:
        """The flow runs that have begun, the earliest first."""
        import httpx

        with contextlib.suppress(httpx.HTTPError, ValueError):
            begun = {"start_time": {"is_null_": False}}
            wanted = {"sort": "START_TIME_DESC", "limit": 50, "flow_runs": begun}
            answer = httpx.post(f"{self.api}/flow_runs/filter", json=wanted, timeout=20)
            if answer.is_success:
                # A run in whose time another was at work never began.
                return [run for run in reversed(answer.json()) if run["state_name"] != "Missed"]
        return []

    def kill_mlflow(self) -> None:
        if self.mlflow:
            kill_tree(self.mlflow.pid)
            self.mlflow = None

    def flow_process(self) -> int | None:
        """The process of the run that `deploy` works on."""
        import psutil

        assert self.deploy is not None
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.deploy.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    words = " ".join(process.cmdline())
                    if "spawn_main" in words or "prefect.flow_engine" in words:  # as Prefect's runner starts flows
                        return int(process.pid)
        return None

    def stop(self) -> float:
        """End both as a user does; returns the seconds that `deploy` took."""
        began = time.monotonic()
        if self.deploy and self.deploy.poll() is None:
            self.deploy.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.deploy.wait(60)
            kill_tree(self.deploy.pid)
        seconds = time.monotonic() - began
        self.kill_mlflow()
        return seconds

    def _spawn(self, command: list[str], log: str, **variables: str) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in environment(1).items() if not name.startswith("PREFECT_")}
        with (self.place.work / log).open("ab") as stream:
            return subprocess.Popen(
                command, cwd=ROOT, env=kept | {"PYTHONPATH": str(ROOT)} | variables, stdout=stream, stderr=subprocess.STDOUT
            )


def kill_tree(pid: int) -> None:
    """SIGKILL to a process and all that it started."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for child in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def answers(address: str) -> bool:
    import httpx

    with contextlib.suppress(httpx.HTTPError):
        return bool(httpx.get(address, timeout=5).is_success)
    return False


def wait_for(ready: Callable[[], Any], seconds: float, what: str, process: subprocess.Popen[bytes] | None = None) -> Any:
    """Wait until something is ready, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        if found := ready():
            return found
        time.sleep(0.5)
    raise SystemExit(f"{what} ended, or took more than {seconds:.0f} s; its log is in the work folder")


@contextlib.contextmanager
def small_disk(place: Place) -> Iterator[str]:
    """A file system of its own for the work folder, where this user may mount one; says what it is."""
    place.disk.mkdir(parents=True, exist_ok=True)
    image = place.work / "disk.img"
    if os.geteuid() or os.path.ismount(place.disk):
        yield "an own disk" if os.path.ismount(place.disk) else "no disk of its own"
        return
    if not image.exists():
        subprocess.run(["truncate", "-s", DISK, str(image)], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(place.disk)], capture_output=True).returncode == 0
    if not mounted:
        image.unlink()
    try:
        yield f"ext4, {DISK}" if mounted else "no disk of its own"
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place.disk)], check=False)
