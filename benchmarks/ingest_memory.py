"""The memory of an ingest of one log: its main process, and all of its processes together.

python benchmarks/ingest_memory.py LOG OUT
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil


def main() -> None:
    log, out = sys.argv[1:]
    command = [str(Path(sys.executable).with_name("tracewheel")), "ingest", log, "--out", out]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    own, most, whole, count = psutil.Process(process.pid), 0, 0, 0
    while process.poll() is None:
        try:
            held = [one.memory_info().rss for one in (own, *own.children(recursive=True))]
        except psutil.Error:  # one of them has just ended
            continue
        most, whole, count = max(most, held[0]), max(whole, sum(held)), max(count, len(held))
        time.sleep(0.1)
    print(f"{log}: main {most >> 20} MiB, all {count} processes {whole >> 20} MiB, exit code {process.returncode}")


if __name__ == "__main__":
    main()
