"""One real `tracewheel retrain` with a ledger of where its wall time goes; the child process of benchmarks/overhead.py.

Time belongs to the innermost of the accounts that are open in the main thread. The time of a stage's own function
goes to its account, MLflow's client calls to MLflow, and the rest of a task call to Prefect.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMPORTS = ("torch", "transformers", "peft", "pandas", "scipy.special", "mlflow", "prefect")  # what a run without DPO imports


class Ledger:
    """Seconds by account, each second in one account only."""

    def __init__(self, started: float) -> None:
        self.seconds: dict[str, float] = {}
        self._open = ["start"]
        self._since = started
        self._thread = threading.get_ident()

    def enter(self, account: str) -> bool:
        if threading.get_ident() != self._thread:
            return False
        self._book()
        self._open.append(account)
        return True

    def leave(self) -> None:
        self._book()
        self._open.pop()

    def _book(self) -> None:
        now = time.time()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now

    def close(self) -> dict[str, float]:
        self._book()
        return {account: round(seconds, 3) for account, seconds in self.seconds.items()}

    def around(self, account: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time booked under an account."""

        @functools.wraps(function)
        def booked(*arguments: Any, **named: Any) -> Any:
            if not self.enter(account):
                return function(*arguments, **named)
            try:
                return function(*arguments, **named)
            finally:
                self.leave()

        return booked


def main() -> None:
    started, profile, run_dir, overrides, out = float(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5])
    ledger = Ledger(started)
    ledger.enter("flow")
    from flows.setup import prepare_environment

    prepare_environment(run_dir)
    from flows.deploy.server import LocalServer

    # As in `tracewheel retrain`, the server starts while this process imports.
    server = LocalServer(Path(run_dir))
    ledger.around("prefect", server.__enter__)()
    try:
        for name in IMPORTS:
            ledger.around(f"import {name.split('.')[0]}", __import__)(name)
        _watch(ledger)
        from flows import retrain as flow

        ledger.around("prefect", server.wait)()
        flow.retrain(profile, json.loads(overrides), run_dir)
    finally:
        ledger.around("prefect", server.__exit__)(None, None, None)
    ledger.leave()
    out.write_text(json.dumps(ledger.close()))


def _watch(ledger: Ledger) -> None:
    """Put accounts around the stages, the store, Prefect and MLflow."""
    import prefect
    from mlflow.tracing.client import TracingClient

    import mlflow
    from tracewheel.core.store import Store

    make = Store.make

    def made(self: Store, stage: str, key: str, produce: Callable[[Path], Any]) -> Any:
        return ledger.around("store", make)(self, stage, key, ledger.around(f"stage {stage}", produce))

    Store.make = made  # type: ignore[method-assign]
    Store.find = ledger.around("store", Store.find)  # type: ignore[method-assign]
    for client in (mlflow.MlflowClient, TracingClient):
        for name, method in list(vars(client).items()):
            if callable(method) and not name.startswith("__"):
                setattr(client, name, ledger.around("mlflow", method))
    prefect.Task.__call__ = ledger.around("prefect", prefect.Task.__call__)  # type: ignore[method-assign]
    prefect.Flow.__call__ = ledger.around("prefect", prefect.Flow.__call__)  # type: ignore[method-assign]
    import tasks.tracking.tracking
    from flows import retrain

    retrain.retrain.fn = ledger.around("flow", retrain.retrain.fn)
    tasks.tracking.make_client = ledger.around("mlflow", tasks.tracking.make_client)
    tasks.tracking.Tracking.settle = ledger.around(
        "mlflow", tasks.tracking.Tracking.settle
    )  # waiting for what is logged beside


if __name__ == "__main__":
    main()
