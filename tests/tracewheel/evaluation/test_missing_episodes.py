"""Missing episodes on their way from an evaluation's files to the gate."""

import dataclasses
import random

import pandas as pd

from tracewheel.config import EvaluationConfig, GateConfig, RubricConfig
from tracewheel.core.types import Score
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.evaluation.evaluate import write_evaluation
from tracewheel.evaluation.gate import decide

SAMPLES = 4


def played(tasks, skill, folder, missing=()):
    """An evaluation of scripted successes, written by the real stage; episodes of `missing` tasks were failed."""

    def score(task, number):
        solves = skill(task, number)
        whole = Score(f"{task.id}-{number}", task.id, task.id, "scored", solves, {"success": solves}, family=task.family)
        if task.id not in missing:
            return whole
        return dataclasses.replace(whole, status="infrastructure_failed", total=None, breakdown={})

    scores = {"greedy": [score(t, -1) for t in tasks], "sampled": [score(t, n) for t in tasks for n in range(SAMPLES)]}
    folder.mkdir()
    summary = write_evaluation(EvaluationConfig(), RubricConfig(), tasks, scores, folder, {})
    return summary, pd.read_parquet(folder / "results.parquet")


def test_killing_a_third_of_the_challengers_hard_episodes_does_not_promote_it(tmp_path):
    """Two equal policies, which fail hard tasks; the challenger's failures on 30% of them become outages."""
    rng = random.Random(4)
    tasks = [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 5) for _ in range(25)]

    def skill(task, number):
        return float(task.tier == 1)

    hard = [task.id for task in tasks if task.tier == 5]
    killed = rng.sample(hard, round(0.3 * len(hard)))
    _, champion = played(tasks, skill, tmp_path / "champion")
    summary, challenger = played(tasks, skill, tmp_path / "challenger", killed)
    assert summary["greedy"]["rate"] > champion["greedy"].mean() + 0.05, "by its own rate it looks better"
    assert summary["missing"]["sampled"] == {"unscored": 0, "infrastructure_failed": len(killed) * SAMPLES}
    verdict = decide(GateConfig(gates_per_year=1), challenger, champion)
    assert not verdict.promoted
    assert verdict.missing == {"challenger": len(killed) * (1 + SAMPLES), "baseline": 0}
