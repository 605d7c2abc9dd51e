"""The stages by name."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import StageTask
from tasks.records.audit import audit_graders
from tasks.stages.champion import load_champion
from tasks.stages.collect import collect_groups
from tasks.stages.curate import curate_tasks
from tasks.stages.evaluate import evaluate_policy
from tasks.stages.gate import decide_gate
from tasks.stages.guard import go_back_to
from tasks.stages.ingest import ingest_traces
from tasks.stages.rate_trials import try_learning_rates
from tasks.stages.rescue import solve_tasks, teach_tasks
from tasks.stages.rollout import roll_out
from tasks.stages.score import score_trajectories
from tasks.stages.update import update_policy
from tasks.stages.warm_start import warm_start_policy

TASKS: dict[str, StageTask[Any]] = {
    task.stage: task
    for task in (
        ingest_traces,
        curate_tasks,
        load_champion,
        warm_start_policy,
        roll_out,
        collect_groups,
        score_trajectories,
        try_learning_rates,
        teach_tasks,
        solve_tasks,
        update_policy,
        go_back_to,
        evaluate_policy,
        audit_graders,
        decide_gate,
    )
}
