"""Traces and curation: what came in, what was left out and why, and what the tasks are like."""

from __future__ import annotations

from typing import Any

from tracewheel.dashboard.intake import intake_of
from tracewheel.dashboard.view import Ask, Tab, page


@page("/runs/{place}/{run_id}/traces", "traces.html", tab=Tab("Traces", "d", 6, in_file=True))
def traces(ask: Ask) -> dict[str, Any]:
    """The traces of a run and their curation."""
    return {"intake": intake_of(ask.run), "split_names": ("train", "validation", "held_out", "harder")}
