"""The gate's verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.core.files import read_table, write_json
from tracewheel.core.store import Entry
from tracewheel.evaluation.gate import decide


@stage_task("gate", code="tracewheel.evaluation.gate", sections=("seed", "gate", "evaluation"))
def decide_gate(run: Run, out: Path, *, challenger: Entry, baseline: Entry, baseline_name: str) -> dict[str, Any]:
    """Compare two evaluations of the same tasks, pair by pair."""
    verdict = decide(
        run.config.gate,
        read_table(challenger.path / "results.parquet"),
        read_table(baseline.path / "results.parquet"),
        run.config.seed,
        baseline=baseline_name,
        resamples=run.config.evaluation.bootstrap,
    ).to_record()
    write_json(out / "gate.json", verdict)
    return verdict
