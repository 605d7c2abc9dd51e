"""Which module of the domain a stage's code is."""

from __future__ import annotations

from tasks.records.audit import audit_graders
from tasks.stages.champion import load_champion
from tasks.stages.collect import collect_groups
from tasks.stages.curate import curate_tasks
from tasks.stages.evaluate import evaluate_policy, join_evaluations
from tasks.stages.gate import decide_gate
from tasks.stages.guard import go_back_to
from tasks.stages.ingest import ingest_traces
from tasks.stages.merge import merge_policies
from tasks.stages.rate_trials import try_learning_rates
from tasks.stages.rollout import roll_out
from tasks.stages.score import score_trajectories
from tasks.stages.update import update_policy
from tasks.stages.warm_start import warm_start_policy

STAGES = (
    ingest_traces,
    curate_tasks,
    load_champion,
    warm_start_policy,
    roll_out,
    collect_groups,
    score_trajectories,
    try_learning_rates,
    update_policy,
    go_back_to,
    merge_policies,
    evaluate_policy,
    join_evaluations,
    audit_graders,
    decide_gate,
)


def module_of(stage: str) -> str:
    """The module that a stage's key is made of."""
    return next(task.code for task in STAGES if task.stage == stage)
