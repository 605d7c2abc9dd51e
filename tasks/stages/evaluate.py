"""Evaluating a policy on a split."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Policy
from tasks.engine.stage import Context, stage_task
from tracewheel.config import EvaluateSections
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.evaluation.evaluate import evaluate_split


def the_tasks(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the tasks of the split in place of the whole curation, which new traces change every night."""
    curated, split, only = arguments["curated"], arguments["split"], arguments.get("tasks")
    tasks = [task.to_record() for task in load_tasks(curated.path, split) if only is None or task.id in only]
    kept = {name: value for name, value in arguments.items() if name != "tasks"}
    return {**kept, "curated": content_hash(tasks, length=64)}


@stage_task(
    "evaluate", code="tracewheel.evaluation.evaluate", sections=EvaluateSections, packages=("llguidance",), reads=the_tasks
)
def evaluate_policy(
    context: Context[EvaluateSections],
    *,
    policy: Policy,
    curated: Entry,
    split: str,
    samples: int | None = None,
    repeat: int = 0,
    tasks: list[str] | None = None,
) -> dict[str, Any]:
    """Greedy and sampled success of a policy on the tasks of a split, or on these of its `tasks` (`evaluate_split`)."""
    summary = evaluate_split(
        context.config, policy.ref(), curated.path, split, context.out, samples=samples, repeat=repeat, only=tasks
    )
    for mode, words in summary.get("without_score", {}).items():
        context.reporter.say(f"{policy.name} on {split}, {mode}: {words}")
    return summary
