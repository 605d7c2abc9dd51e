"""`tracewheel sync`: deliver to MLflow what runs could not log while it was away."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from flows.setup import prepare_environment, resolve_config
from tracewheel.core.errors import InfrastructureError


def sync(options: argparse.Namespace) -> dict[str, Any]:
    """Deliver what waits in the work folder, in order.

    Raises:
        InfrastructureError: something still waits.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(None, debug=options.debug)
    from tasks.tracking.sync import deliver_waiting

    done = deliver_waiting(config.work_dir, lambda text: print(text, file=sys.stderr), quick=False)
    if done.waiting:
        raise InfrastructureError(f"{done.count} records delivered, {done.waiting} still wait for MLflow: {done.reason}")
    return {"delivered": done.count, "waiting": 0}
