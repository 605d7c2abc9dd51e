"""Scoring stored trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.curate import load_tasks
from tracewheel.score import score
from tracewheel.store import Entry


@stage_task("score", code="tracewheel.score", sections=("rubric",))
def score_trajectories(run: Run, out: Path, *, curated: Entry, trajectories: Entry, iteration: int) -> dict[str, Any]:
    """Judge every trajectory by the rubric; the breakdown is kept."""
    return score(run.config, load_tasks(curated.path, "train"), trajectories.path / "trajectories.parquet", out)
