"""Rolling a policy out on training tasks."""

from __future__ import annotations

import functools
from typing import Any

from tasks.engine.run import Policy
from tasks.engine.stage import Context, stage_task
from tracewheel.config import RolloutSections
from tracewheel.core.store import Entry
from tracewheel.core.types import Task
from tracewheel.rollout.rollout import RolloutPlan, rollout
from tracewheel.rollout.training_tasks import training_tasks
from tracewheel.sampling.curriculum import write_variants
from tracewheel.sampling.seeds import rollout_seed


@stage_task("rollout", code="tracewheel.rollout.rollout", sections=RolloutSections)
def roll_out(
    context: Context[RolloutSections],
    *,
    policy: Policy,
    curated: Entry,
    task_ids: list[str],
    variants: list[dict[str, Any]],
    iteration: int,
    temperature: float,
    greedy_baseline: bool = False,
    refill: int = 0,
) -> dict[str, Any]:
    """Sample a group of trajectories of each chosen task; `variants` are those of them that curation did not make.

    With `greedy_baseline` each task is also played greedily. `refill` counts the rounds of dynamic sampling after an
    iteration's first.
    """
    config = context.config
    seed = rollout_seed(config.seed, iteration)
    changed = [Task.from_record(variant) for variant in variants]
    played = training_tasks(config.rollout.exploration, curated.path, task_ids, changed, seed)
    write_variants(context.out, played.made)
    helper = context.helper
    work = functools.partial(helper, rollout) if helper else rollout
    plan = RolloutPlan(
        played.tasks,
        samples=config.rollout.group_size,
        seed=seed,
        temperature=temperature,
        greedy_baseline=greedy_baseline,
    )
    if helper:
        config = config.model_copy(update={"placement": config.placement.inside_worker})
    metrics: dict[str, float] = work(config, policy.ref(), plan, context.out)
    return metrics
