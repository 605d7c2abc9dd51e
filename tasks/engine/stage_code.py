"""The stages by name, and the files of their code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tasks.engine.stage import StageTask
from tasks.records.audit import audit_graders
from tasks.stages.champion import load_champion
from tasks.stages.curate import curate_tasks
from tasks.stages.evaluate import evaluate_policy
from tasks.stages.gate import decide_gate
from tasks.stages.guard import go_back_to
from tasks.stages.ingest import ingest_traces
from tasks.stages.rescue import solve_tasks, teach_tasks
from tasks.stages.rollout import collect_groups, roll_out
from tasks.stages.score import score_trajectories
from tasks.stages.update import try_learning_rates, update_policy
from tasks.stages.warm_start import warm_start_policy
from tracewheel.config import RetrainConfig
from tracewheel.core.fingerprint import code_files

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


def stage_files(stage: str, config: RetrainConfig) -> Iterable[Path]:
    """The files of code that a stage's key is made of; none of a stage of a wheel."""
    return code_files(*TASKS[stage].code_of(config).modules).values() if stage in TASKS else ()
