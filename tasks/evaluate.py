"""Evaluating a policy on a split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Policy, Run
from tasks.stage import Call, Context, Expected, stage_task
from tasks.traces import EvaluationTags, log_traces
from tasks.tracking import Tracking
from tracewheel.config import EvaluateSections
from tracewheel.core.files import read_table
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import TASKS_FILE, VALIDATION, load_tasks
from tracewheel.evaluation.evaluate import evaluate
from tracewheel.sampling.seeds import evaluation_seed

FEWER_TRACES = 4


def expected(call: Call, place: int) -> Expected:
    """Every task is played; on the validation split each policy is better than those before it, so the last is chosen."""
    split = call.arguments["split"]
    tasks = int((read_table(call.arguments["curated"].path / TASKS_FILE)["split"] == split).sum())
    rates = {"rate": 1.0 + place if split == VALIDATION else None, "n": tasks}
    result = {"tasks": tasks, "greedy": rates, "sampled": rates, "by_family": {}}
    return Expected(tasks * (1 + call.arguments["samples"]), result)


@stage_task("evaluate", code="tracewheel.evaluation.evaluate", sections=EvaluateSections, expects=expected)
def evaluate_policy(
    context: Context[EvaluateSections], *, policy: Policy, curated: Entry, split: str, samples: int, repeat: int = 0
) -> dict[str, Any]:
    """Greedy and sampled success of a policy on the tasks of a split; a `repeat` has another seed."""
    seed = evaluation_seed(context.config.seed, split, repeat)
    tasks = load_tasks(curated.path, split)
    return evaluate(context.config, policy.ref(), tasks, context.out, samples=samples, seed=seed)


def evaluate_and_log(run: Run, *, policy: Policy, curated: Entry, split: str, samples: int) -> Entry:
    """Evaluate, and log some of the trajectories with their scores as MLflow traces."""
    entry = evaluate_policy(run, policy=policy, curated=curated, split=split, samples=samples)
    if run.tracking:
        wanted = run.config.tracking.traces_per_evaluation // (FEWER_TRACES if split == VALIDATION else 1)
        evaluated = EvaluationTags(policy.name, split, run.record.run_id)
        run.tracking.later(_log_traces, run.tracking, entry.path, curated.path, wanted, evaluated)
    return entry


def _log_traces(tracking: Tracking, evaluation: Path, curated: Path, wanted: int, evaluated: EvaluationTags) -> None:
    log_traces(tracking, evaluation, load_tasks(curated, evaluated.split), wanted, evaluated)
