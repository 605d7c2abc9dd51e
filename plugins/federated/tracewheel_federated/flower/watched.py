"""Flower's server or client, ended with the command that started it: `python -m tracewheel_federated.flower.watched WHICH ...`.

Flower's own programs go on when their parent is killed; with them a SuperLink keeps its port.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

WATCH_SECONDS = 0.5


def main() -> None:
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    which = sys.argv.pop(1)
    sys.argv[0] = f"flower-{which}"
    if which == "superlink":
        from flwr.superlink.cli import flower_superlink as program
    else:
        from flwr.supernode.cli import flower_supernode as program
    program()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.killpg(0, signal.SIGKILL)  # it leads a group of its own


if __name__ == "__main__":
    main()
