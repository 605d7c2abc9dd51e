"""The supervised warm start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.core.store import Entry
from tracewheel.learner.warm_start.stage import warm_start


@stage_task(
    "warm_start",
    code="tracewheel.learner.warm_start.stage",
    sections=("seed", "threads", "policy", "environment", "warm_start"),
)
def warm_start_policy(run: Run, out: Path, *, curated: Entry, demonstrations: str) -> dict[str, Any]:
    """Fine-tune an adapter on verified episodes, or on all logged ones."""
    return warm_start(run.config, curated.path, out, demonstrations)
