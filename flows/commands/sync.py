"""`tracewheel sync`: deliver to MLflow what runs could not log while it was away."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from flows.setup import prepare_environment, resolve_config
from tracewheel.core.errors import InfrastructureError


def sync(options: argparse.Namespace) -> dict[str, Any]:
    """Bring MLflow to what the folders of the work folder's runs say.

    Raises:
        InfrastructureError: a run still waits.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(None, debug=options.debug)
    from tasks.tracking.tracking import deliver_waiting

    done = deliver_waiting(config.work_dir, lambda text: print(text, file=sys.stderr), every=True)
    if done.waiting:
        raise InfrastructureError(f"{len(done.waiting)} runs still wait for MLflow: {done.reason}")
    return {"delivered": list(done.runs), "waiting": 0}
