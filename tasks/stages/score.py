"""Scoring stored trajectories."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Context, stage_task
from tracewheel.config import ScoreSections
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import score


@stage_task("score", code="tracewheel.scoring.score", sections=ScoreSections)
def score_trajectories(
    context: Context[ScoreSections], *, curated: Entry, trajectories: Entry, iteration: int
) -> dict[str, Any]:
    """Judge every trajectory by the rubric; the breakdown is kept."""
    return score(context.config, load_tasks(curated.path, "train"), trajectories.path / TRAJECTORIES_FILE, context.out)
