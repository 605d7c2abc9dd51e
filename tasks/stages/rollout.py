"""Rolling a policy out on training tasks, and collecting what rollout workers handed in."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Policy
from tasks.engine.stage import Context, stage_task
from tracewheel.config import CollectSections, RolloutSections
from tracewheel.core.store import Entry
from tracewheel.core.types import Task
from tracewheel.rollout import rollout
from tracewheel.rollout.collect import collect
from tracewheel.rollout.trajectory_queue import ClaimedGroups


@stage_task("rollout", code="tracewheel.rollout.rollout", sections=RolloutSections, packages=("llguidance",))
def roll_out(
    context: Context[RolloutSections],
    *,
    policy: Policy,
    curated: Entry,
    task_ids: list[str],
    variants: list[dict[str, Any]],
    iteration: int,
    greedy_baseline: bool = False,
    refill: int = 0,
) -> dict[str, Any]:
    """Sample a group of trajectories of each chosen task; `variants` are those of them that curation did not make.

    With `greedy_baseline` each task is also played greedily. `refill` counts the rounds of dynamic sampling after an
    iteration's first.
    """
    metrics: dict[str, Any] = rollout.roll_out(
        context.config,
        policy.ref(),
        curated.path,
        task_ids,
        context.out,
        iteration=iteration,
        variants=[Task.from_record(variant) for variant in variants],
        greedy_baseline=greedy_baseline,
    )
    if words := metrics.get("without_score"):
        context.reporter.say(f"rollout {iteration}: {words}")
    return metrics


@stage_task("collect", code="tracewheel.rollout.collect", sections=CollectSections)
def collect_groups(context: Context[CollectSections], *, claimed: ClaimedGroups, iteration: int) -> dict[str, Any]:
    """The trajectories that an iteration claimed, as files."""
    metrics = collect(claimed, context.out)
    if words := metrics.get("without_score"):
        context.reporter.say(f"rollout {iteration}: {words}")
    return metrics
