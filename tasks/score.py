"""Scoring stored trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.sampling.curriculum import read_variants
from tracewheel.scoring.score import score


@stage_task("score", code="tracewheel.scoring.score", sections=("policy", "environment", "rubric"))
def score_trajectories(run: Run, out: Path, *, curated: Entry, trajectories: Entry, iteration: int) -> dict[str, Any]:
    """Judge every trajectory by the rubric; the breakdown is kept."""
    tasks = [*load_tasks(curated.path, "train"), *read_variants(trajectories.path)]
    return score(run.config, tasks, trajectories.path / "trajectories.parquet", out)
