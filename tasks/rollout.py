"""Rolling a policy out on training tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Policy, Run
from tasks.stage import stage_task
from tracewheel.curate import load_tasks
from tracewheel.rollout import rollout
from tracewheel.schedule import rollout_seed
from tracewheel.store import Entry


@stage_task("rollout", code="tracewheel.rollout", sections=("seed", "threads", "policy", "environment", "rollout"))
def roll_out(run: Run, out: Path, *, policy: Policy, curated: Entry, task_ids: list[str], iteration: int) -> dict[str, Any]:
    """Sample a group of trajectories of each chosen task."""
    by_id = {task.id: task for task in load_tasks(curated.path, "train")}
    return rollout(
        run.config,
        policy.ref(),
        [by_id[task_id] for task_id in task_ids],
        out,
        samples=run.config.rollout.group_size,
        seed=rollout_seed(run.config.seed, iteration),
        progress=run.reporter.move,
    )
