"""What forgetting somebody cost: the policy before beside the one that was trained without them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tracewheel import (
    EvaluateSections,
    FinishedRun,
    RetrainConfig,
    decide_gate,
    evaluate_split,
    load_tasks,
    policy_of,
    weights_folder,
)

HELD_OUT = "held_out"


def effect_of(config: RetrainConfig, run: FinishedRun, before: Path) -> dict[str, Any]:
    """Both policies on the held-out tasks of the new run, and the paired difference with its interval.

    Args:
        config: The profile.
        run: The run that was trained without them.
        before: Weights of the earlier champion.

    Returns:
        `tasks`, `before` and `after` (greedy and sampled success), and of the gate's comparison `difference`, `interval`,
        `confidence` and `p_value`. It is one comparison, not one of a year's.

    Raises:
        DataError: the run has no weights, or its curation is no longer in the store.
    """
    rates = {}
    with tempfile.TemporaryDirectory(prefix="tracewheel-effect-") as place:
        for name, weights in (("before", before), ("after", weights_folder(run.record.path))):
            (out := Path(place) / name).mkdir()
            policy = policy_of(weights, config.policy.base)
            rates[name] = evaluate_split(EvaluateSections.of(config), policy, run.curated, HELD_OUT, out)
        single = config.gate.model_copy(update={"gates_per_year": 1})
        # No `false_accepts`: it changes the verdict alone, which is the run's own; the difference is what it is.
        verdict = decide_gate(single, Path(place) / "after", Path(place) / "before", None, baseline_name="before").to_record()
    kept = ("difference", "interval", "confidence", "p_value")
    return {
        "tasks": len(load_tasks(run.curated, HELD_OUT)),
        **{name: {way: rate[way] for way in ("greedy", "sampled")} for name, rate in rates.items()},
        **{key: verdict[key] for key in kept if key in verdict},
    }
