"""The supervised warm start."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Context, stage_task
from tracewheel.config import WarmStartSections
from tracewheel.core.store import Entry
from tracewheel.learner.warm_start.stage import warm_start

# Demonstrations to the name of the warm start on them.
WARM_STARTS = {"all": "warm_start", "verified": "warm_start_verified", "none": "untrained"}


@stage_task(
    "warm_start",
    code="tracewheel.learner.warm_start.stage",
    sections=WarmStartSections,
)
def warm_start_policy(context: Context[WarmStartSections], *, curated: Entry, demonstrations: str) -> dict[str, Any]:
    """Fine-tune an adapter on verified episodes, or on all logged ones."""
    return warm_start(context.config, curated.path, context.out, demonstrations)
