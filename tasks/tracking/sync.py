"""Delivering what earlier runs of a work folder could not log."""

from __future__ import annotations

import time
from pathlib import Path

from tasks.tracking.client import MlflowAway, bounded, make_client
from tasks.tracking.delivery import Delivered, Delivery, Say
from tasks.tracking.tracking import BUSY_SECONDS, PAUSES, waits
from tracewheel.config import RetrainConfig
from tracewheel.core.spool import Spool


def deliver_waiting(work_dir: str | Path, say: Say, *, quick: bool = True) -> Delivered:
    """Deliver what waits for MLflow in a work folder; does nothing where nothing waits.

    Args:
        work_dir: The folder.
        say: Told how it went.
        quick: Try once; otherwise a few times.
    """
    if not Spool.of(work_dir).waiting():
        return Delivered()
    delivery, done = Delivery(work_dir, say), Delivered()
    patience = time.monotonic() + BUSY_SECONDS
    for pause in PAUSES[:1] if quick else PAUSES:
        time.sleep(pause)
        attempt = delivery.deliver()
        while attempt.busy and attempt.waiting and time.monotonic() < patience:
            time.sleep(0.1)  # another process delivers these
            attempt = delivery.deliver()
        attempt.count += done.count
        done = attempt
        if not done.away and not done.busy:
            break
    if done.count:
        say(f"{done.count} records of earlier runs delivered to MLflow")
    if done.waiting:
        say(f"{waits(done.waiting)} in {delivery.spool.root} ({done.reason})")
    return done


@bounded
def require_mlflow(config: RetrainConfig, purpose: str, say: Say) -> None:
    """Make sure that MLflow answers and has what earlier runs logged, for what must not wait for it.

    Raises:
        MlflowAway: it does not answer, or does not take what waits.
    """
    uri = config.tracking.uri
    make_client(uri).search_experiments(max_results=1)
    done = deliver_waiting(config.work_dir, say)
    if done.busy or uri in done.away:
        raise MlflowAway(f"{waits(done.waiting)} ({done.reason}), and {purpose} comes after them: `tracewheel runs sync` first")
