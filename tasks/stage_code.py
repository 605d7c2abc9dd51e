"""Which module of the domain a stage's code is."""

from __future__ import annotations

from tasks.audit import audit_graders
from tasks.collect import collect_groups
from tasks.curate import curate_tasks
from tasks.evaluate import evaluate_policy, join_evaluations
from tasks.gate import decide_gate
from tasks.guard import go_back_to
from tasks.ingest import ingest_traces
from tasks.merge import merge_policies
from tasks.rate_trials import try_learning_rates
from tasks.registry import load_champion
from tasks.rollout import roll_out
from tasks.score import score_trajectories
from tasks.update import update_policy
from tasks.warm_start import warm_start_policy

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
