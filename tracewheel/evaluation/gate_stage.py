"""The gate stage: the verdict on two evaluations of the same tasks."""

from __future__ import annotations

from pathlib import Path

from tracewheel.config import GateConfig
from tracewheel.core.files import read_table, write_json
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.gate import GATE_FILE, Verdict, decide, held_to_fidelity
from tracewheel.evaluation.sequential import SequentialDesign


def decide_gate(
    config: GateConfig,
    challenger: Path,
    baseline: Path,
    out: Path | None,
    *,
    baseline_name: str = "baseline",
    look: Look | None = None,
    stopped_at: int | None = None,
    fidelity: float | None = None,
    false_accepts: float | None = None,
) -> Verdict:
    """Compare two evaluations pair by pair (`gate.decide`), and write the verdict to `gate.json`.

    Args:
        config: The section `gate`.
        challenger: The evaluation stage's output for the new policy.
        baseline: The same for the policy to beat.
        out: The folder to write to; None to write nothing.
        baseline_name: The name of the policy to beat, for the verdict.
        look: The place of this gate in the sequence of a work folder; by default the first.
        stopped_at: The look that ended a sequential evaluation, from 0; None without one.
        fidelity: That of the challenger's least faithful update; None where no programs were trained.
        false_accepts: The share of failures that the graders might accept; None where nobody asks.

    Raises:
        DataError: an evaluation is missing or damaged.
    """
    look = look or Look()
    level = level_of(config, look)
    verdict = decide(
        config,
        read_table(challenger / RESULTS_FILE),
        read_table(baseline / RESULTS_FILE),
        baseline=baseline_name,
        look=look,
        false_accepts=false_accepts,
        level=level if stopped_at is None else SequentialDesign.of(level, config.looks).levels[stopped_at],
    )
    if fidelity is not None:
        verdict = held_to_fidelity(config, verdict, fidelity)
    if out:
        write_json(out / GATE_FILE, verdict.to_record())
    return verdict
