"""What a run leaves in Prefect's own pages: progress, the table, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)


class LoopProgress:
    """A progress artifact of the reinforcement-learning loop."""

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations
        self._id: Any = create_progress_artifact(0.0, key="rl-iterations", description="Reinforcement-learning iterations")

    def reached(self, iteration: int) -> None:
        update_progress_artifact(self._id, progress=100.0 * iteration / self._iterations)


def publish_summary(summary: Mapping[str, Any]) -> None:
    """The before-and-after table and the gate's verdict."""
    names = ("success", "sampled", "harder")
    rows = [{"policy": policy} | {name: summary[name][policy] for name in names} for policy in summary["success"]]
    create_table_artifact(rows, key="success", description=f"Success of run {summary['run_id']}")
    gate = summary["gate"]
    reasons = "\n".join(f"- {reason}" for reason in gate["reasons"])
    text = f"**{gate['verdict']}**, compared with {gate['baseline']}\n\n{reasons}\n\nReport: `{summary['report']}`\n"
    create_markdown_artifact(text, key="gate", description=f"Verdict on run {summary['run_id']}")
