"""What a vLLM server that was started here runs as: vLLM's own server, which ends with the process that started it.

Its standard input is a pipe that nobody writes to. When the other end is gone, however that came about, so is
the whole group of processes that vLLM has started.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
