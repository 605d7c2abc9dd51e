"""What a run leaves in Prefect's own pages: progress, the table, the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.runtime import flow_run

from tracewheel.core.progress import Listener, Progress

EVERY_SECONDS = 10.0


class _Bar:
    """A progress artifact. A server that does not answer must not end what it shows, nor be asked each time."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._gone = False
        self.id: Any = None

    def show(self, share: float, text: str) -> None:
        if self._gone:
            return
        try:
            if self.id is None:
                self.id = create_progress_artifact(share, key=self._key, description=text)
            else:
                update_progress_artifact(self.id, progress=share, description=text)
        except Exception:
            self._gone = True


class StageProgress:
    """A progress artifact of a stage that takes longer than `every` seconds, updated no more often than that.

    Args:
        stage: Name of the stage.
        listener: Told each time.
        every: Seconds.
    """

    def __init__(self, stage: str, listener: Listener, every: float = EVERY_SECONDS) -> None:
        self._listener, self._every = listener, every
        self._bar = _Bar(f"{stage.replace('_', '-')}-progress")
        self._said = time.monotonic()

    def reached(self, progress: Progress) -> None:
        self._listener(progress)
        now = time.monotonic()
        if now < self._said + self._every or not progress.total:
            return
        self._said = now
        tokens = f", {progress.tokens} tokens" if progress.tokens else ""
        text = f"{progress.done} of {progress.total} {progress.unit}{tokens}"
        self._bar.show(100.0 * progress.done / progress.total, text)

    def ended(self) -> None:
        """The stage is done."""
        if self._bar.id is not None:
            self._bar.show(100.0, "done")


def loop_progress(iterations: int) -> Callable[[int], None]:
    """A progress artifact of the reinforcement-learning loop, to be told of each iteration."""
    bar = _Bar("rl-iterations")

    def reached(iteration: int) -> None:
        bar.show(100.0 * iteration / iterations, "Reinforcement-learning iterations")

    reached(0)
    return reached


def publish_summary(summary: Mapping[str, Any], note: str) -> bool:
    """The before-and-after table, the funnel of the traces, the note on the run; returns whether Prefect's server took them.

    Outside of a flow run there is no page to put them on, and asking for one would start a server.
    """
    if not flow_run.id:
        return False
    try:
        _publish(summary, note)
    except Exception:  # a server that does not answer must not end the run, which is complete
        return False
    return True


def _publish(summary: Mapping[str, Any], note: str) -> None:
    names, run_id = ("success", "sampled", "harder"), summary["run_id"]
    rows = [{"policy": policy} | {name: summary[name][policy] for name in names} for policy in summary["success"]]
    create_table_artifact(rows, key="success", description=f"Success of run {run_id}")
    if steps := summary.get("funnel"):
        table = [{part: _listed(value) for part, value in step.items()} for step in steps]
        create_table_artifact(table, key="funnel", description=f"What became of what run {run_id} took in")
    create_markdown_artifact(note, key="gate", description=f"Verdict on run {run_id}")


def _listed(value: Any) -> Any:
    """A cell of a table: counts by name as a text."""
    return "; ".join(f"{count} {name}" for name, count in value.items()) if isinstance(value, dict) else value


def show_skip(run_id: str, reason: str) -> None:
    """Why a scheduled run was skipped, as a page of its flow run."""
    if not flow_run.id:
        return
    create_markdown_artifact(f"**skipped**\n\n{reason}\n", key="skipped", description=f"Why run {run_id} was skipped")
