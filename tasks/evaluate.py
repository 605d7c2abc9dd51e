"""Evaluating a policy on a split."""

from __future__ import annotations

from typing import Any

from tasks.run import Policy, Run
from tasks.stage import Call, Context, Expected, stage_task
from tasks.traces import EvaluationTags, log_traces
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
    progress = context.reporter.move
    return evaluate(context.config, policy.ref(), tasks, context.out, samples=samples, seed=seed, progress=progress)


def evaluate_and_log(run: Run, *, policy: Policy, curated: Entry, split: str, samples: int) -> Entry:
    """Evaluate, and log some of the trajectories with their scores as MLflow traces."""
    entry = evaluate_policy(run, policy=policy, curated=curated, split=split, samples=samples)
    if run.tracking:
        tasks = load_tasks(curated.path, split)
        wanted = run.config.tracking.traces_per_evaluation // (FEWER_TRACES if split == VALIDATION else 1)
        log_traces(run.tracking, entry.path, tasks, wanted, EvaluationTags(policy.name, split, run.record.run_id))
    return entry
