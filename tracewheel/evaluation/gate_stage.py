"""The gate stage: the verdict on two evaluations of the same tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tracewheel.config import GateConfig
from tracewheel.core.files import read_table, write_json
from tracewheel.evaluation.error_budget import Look
from tracewheel.evaluation.gate import GATE_FILE, Verdict, decide, held_to_fidelity
from tracewheel.evaluation.paired_outcomes import RESULTS_FILE


def decide_gate(
    config: GateConfig,
    challenger: Path,
    baseline: Path,
    out: Path | None,
    *,
    baseline_name: str = "baseline",
    look: Look | None = None,
    level: float | None = None,
    fidelity: float | None = None,
    false_accepts: float | None = None,
    trained: bool = True,
) -> Verdict:
    """Compare two evaluations pair by pair (`gate.decide`), and write the verdict to `gate.json`.

    Args:
        config: The section `gate`.
        challenger: The evaluation stage's output for the new policy.
        baseline: The same for the policy to beat.
        out: The folder to write to; None to write nothing.
        baseline_name: The name of the policy to beat, for the verdict.
        look: The place of this gate in the sequence of a work folder; by default the first.
        level: Of the tests, in place of the look's.
        fidelity: That of the challenger's least faithful update; None where no programs were trained.
        false_accepts: The share of failures that the graders might accept; None where nobody asks.
        trained: Whether the challenger is another policy than the one that training began with; if not, nothing is asked.

    Raises:
        DataError: an evaluation is missing or damaged.
    """
    verdict = decide(
        config,
        read_table(challenger / RESULTS_FILE),
        read_table(baseline / RESULTS_FILE),
        baseline=baseline_name,
        look=look or Look(),
        level=level,
        false_accepts=false_accepts,
        trained=trained,
    )
    if fidelity is not None:
        verdict = held_to_fidelity(config, verdict, fidelity)
    if not trained:
        verdict = replace(verdict, verdict="refused", reasons=["nothing to test, no budget spent"], level=None, look=None)
    if out:
        write_json(out / GATE_FILE, verdict.to_record())
    return verdict
