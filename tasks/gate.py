"""The gate's verdict."""

from __future__ import annotations

from typing import Any

from tasks.stage import Context, stage_task
from tracewheel.config import GateSections
from tracewheel.core.files import read_table, write_json
from tracewheel.core.store import Entry
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.gate import GATE_FILE, decide


@stage_task("gate", code="tracewheel.evaluation.gate", sections=GateSections)
def decide_gate(context: Context[GateSections], *, challenger: Entry, baseline: Entry, baseline_name: str) -> dict[str, Any]:
    """Compare two evaluations of the same tasks, pair by pair."""
    verdict = decide(
        context.config.gate,
        read_table(challenger.path / RESULTS_FILE),
        read_table(baseline.path / RESULTS_FILE),
        context.config.seed,
        baseline=baseline_name,
        resamples=context.config.evaluation.bootstrap,
    ).to_record()
    write_json(context.out / GATE_FILE, verdict)
    return verdict
