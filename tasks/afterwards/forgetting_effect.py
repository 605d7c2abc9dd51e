"""What forgetting somebody cost: the policy before beside the one that was trained without them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tracewheel.config import EvaluateSections, RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import RunRecord
from tracewheel.curation.curated_folder import HELD_OUT, load_tasks
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate
from tracewheel.evaluation.gate import decide
from tracewheel.policy.adapters import ADAPTER, MODEL, policy_of
from tracewheel.report.doctor import LOOP_FILE
from tracewheel.sampling.seeds import evaluation_seed


def effect_of(config: RetrainConfig, record: RunRecord, before: Path) -> dict[str, Any]:
    """Both policies on the held-out tasks of the new run, and the paired difference with its interval.

    Args:
        config: The profile.
        record: The run that was trained without them.
        before: Weights of the earlier champion.

    Returns:
        `tasks`, `before` and `after` (greedy and sampled success), and of the gate's comparison `difference`, `interval`,
        `confidence` and `p_value`. It is one comparison, not one of a year's.

    Raises:
        DataError: the run has no weights, or its curation is no longer in the store.
    """
    curated = Path(config.work_dir) / "store" / str(read_json(record.path / LOOP_FILE).get("curated"))
    after = next((record.path / kind for kind in (ADAPTER, MODEL) if (record.path / kind).is_dir()), None)
    if after is None or not curated.is_dir():
        raise DataError(f"{record.path}: has no weights, or its curation is no longer in the store")
    tasks, sections = load_tasks(curated, HELD_OUT), EvaluateSections.of(config)
    seed, rates, results = evaluation_seed(config.seed, HELD_OUT), {}, {}
    with tempfile.TemporaryDirectory(prefix="tracewheel-effect-") as place:
        for name, weights in (("before", before), ("after", after)):
            out = Path(place) / name
            out.mkdir()
            policy = policy_of(weights, config.policy.base)
            rates[name] = evaluate(sections, policy, tasks, out, samples=config.evaluation.samples, seed=seed)
            results[name] = read_table(out / RESULTS_FILE)
    single = config.gate.model_copy(update={"gates_per_year": 1})
    verdict = decide(single, results["after"], results["before"], baseline="before").to_record()
    kept = ("difference", "interval", "confidence", "p_value")
    return {
        "tasks": len(tasks),
        **{name: {way: rate[way] for way in ("greedy", "sampled")} for name, rate in rates.items()},
        **{key: verdict[key] for key in kept if key in verdict},
    }
