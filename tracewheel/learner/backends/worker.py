"""One process of several, of an update or warm start: `python -m tracewheel.learner.backends.worker SOCKET`, under torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tracewheel.config import UpdateSections, WarmStartSections
from tracewheel.core.errors import TracewheelError
from tracewheel.core.processes import end_with_parent
from tracewheel.learner.backends.kept_processes import orders
from tracewheel.learner.backends.processes import rank
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.learner.warm_start.stage import warm_start


def carry_out(order: dict[str, Any]) -> None:
    """Run this process's part of an update or a warm start, ordered by `launch`. Raises like `update` and `warm_start`."""
    if order["stage"] == "warm_start":
        config = WarmStartSections.model_validate(order["config"])
        warm_start(config, Path(order["curated"]), Path(order["out"]), order["demonstrations"])
        return
    files = UpdateFiles.from_json(order["files"])
    update(UpdateSections.model_validate(order["config"]), files, iteration=order["iteration"])


def main(address: str) -> int:
    """Carry out orders until there are no more, or one fails; returns the exit code."""
    end_with_parent(os.getppid())
    for order, reply in orders(address):
        try:
            carry_out(order)
        except TracewheelError as error:
            reply({"kind": type(error).__name__, "message": str(error)})
            return 1
        except Exception as error:  # torchrun's log would end with torchrun's own words
            reply(
                {
                    "kind": "InfrastructureError",
                    "message": f"{order['stage']}, process {rank()}: {type(error).__name__}: {error}",
                }
            )
            raise
        reply({})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
