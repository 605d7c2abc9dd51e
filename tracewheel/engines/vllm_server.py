"""vLLM's own server as a child of this process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tracewheel.config.placement import visible
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.processes import free_port
from tracewheel.engines.vllm_settings import VllmSettings, environment

POLL_SECONDS = 0.25
PROBE_SECONDS = 5.0
LINES_SHOWN = 15


class VllmServer:
    """One server on a free port of this machine. It ends with this process.

    Args:
        base: The base model.
        settings: vLLM's settings.
        patience: Seconds that its start may take.
        cards: The GPUs that it sees; all that this process sees by default.
    """

    def __init__(self, base: str, settings: VllmSettings, patience: float, cards: tuple[int, ...] = ()) -> None:
        self._cards = cards
        # vLLM's server offers /sleep and /wake_up in this mode only.
        self._variables = {"VLLM_SERVER_DEV_MODE": "1"} if settings.sleeps else {}
        self._arguments = [
            *command_line(settings.arguments(base)),
            f"--data-parallel-size={settings.data_parallel_size}",
            "--enable-scale-out",
            "--disable-uvicorn-access-log",
        ]
        self._settings = settings
        self._threads = settings.threads if settings.device == "cpu" else None
        self._patience = patience
        self._port = free_port()
        self._log = Path(tempfile.mkdtemp(prefix="tracewheel-vllm-")) / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.starts = 0
        atexit.register(self.stop)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def process_id(self) -> int | None:
        """The id of its process, None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def ensure(self) -> None:
        """Start it unless it runs, and wait until it answers.

        Raises:
            InfrastructureError: it ends by itself, or does not answer in time; the message ends with its log's last lines.
        """
        with self._lock:
            if self.process_id() is not None:
                return
            self.stop()
            self._start()
            deadline = time.monotonic() + self._patience
            while not self._answers():
                if self.process_id() is None:
                    raise InfrastructureError(f"vLLM's server ended by itself; end of its log:\n{self._end_of_log()}")
                if time.monotonic() > deadline:
                    self.stop()
                    raise InfrastructureError(
                        f"vLLM's server does not answer after {self._patience:.0f} s; end of its log:\n{self._end_of_log()}"
                    )
                time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End it and all processes that it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _start(self) -> None:
        variables = os.environ | environment(self._settings, in_process=False) | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
        variables |= visible(self._cards) | self._variables
        variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)  # set by a vLLM in this process
        if self._threads is not None:
            # On the CPU compilation costs a minute and gains nothing.
            variables |= {"OMP_NUM_THREADS": str(self._threads), "TORCH_COMPILE_DISABLE": "1"}
        # vLLM's processes import Tracewheel's logits processor, installed or not.
        root = str(Path(__file__).parents[2])
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [root, variables.get("PYTHONPATH")]))
        command = [
            sys.executable,
            "-m",
            "tracewheel.engines.vllm_child",
            str(os.getpid()),
            "--host=127.0.0.1",
            f"--port={self._port}",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command + self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )
        self.starts += 1

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=PROBE_SECONDS).is_success
        except httpx.TransportError:
            return False

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])


def command_line(arguments: dict[str, Any]) -> list[str]:
    """Arguments of vLLM as flags."""
    flags: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            flags += [f"--{flag}", *map(str, value)]
        else:
            flags.append(f"--{flag}={json.dumps(value) if isinstance(value, dict) else value}")
    return flags
