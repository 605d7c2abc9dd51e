"""Scoring stored trajectories."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Call, Context, Expected, stage_task
from tracewheel.config import ScoreSections
from tracewheel.core.store import Entry
from tracewheel.core.types import Score
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import SCORES_FILE, score, write_scores


def expected(call: Call, place: int) -> Expected:
    """No episode is scored, and every group carries a signal, so that dynamic sampling asks for no more."""
    episodes = call.arguments["trajectories"].result["episodes"]
    groups = range(episodes // call.run.config.episodes_per_task)
    scores = [Score("", "", str(group), "unscored", total) for group in groups for total in (0.0, 1.0)]
    return Expected(episodes, {"scored": 0, "success": None}, lambda out: write_scores(out / SCORES_FILE, scores))


@stage_task("score", code="tracewheel.scoring.score", sections=ScoreSections, expects=expected)
def score_trajectories(
    context: Context[ScoreSections], *, curated: Entry, trajectories: Entry, iteration: int
) -> dict[str, Any]:
    """Judge every trajectory by the rubric; the breakdown is kept."""
    return score(context.config, load_tasks(curated.path, "train"), trajectories.path / TRAJECTORIES_FILE, context.out)
