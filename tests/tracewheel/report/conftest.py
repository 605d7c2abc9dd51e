"""A finished run in small: scripted policies on real tasks, scored by the real stage."""

import random
from types import SimpleNamespace

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.files import write_records
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.evaluation.gate import decide
from tracewheel.report.figures import RunFolders
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores, score

CONFIG = RetrainConfig(name="small", evaluation={"samples": 4, "pass_at": (1, 4)})
SKILLS = {"base": 0.3, "warm_start": 0.5, "warm_start_verified": 0.7, "rl": 0.95}


def make_tasks():
    """(task, split) of 24 held-out and 12 harder tasks, and of one training task."""
    rng = random.Random(0)
    held_out = [make_task(family, tier, rng) for tier in (2, 3, 4) for family in FAMILIES for _ in range(2)]
    harder = [make_task(family, 5, rng) for family in FAMILIES for _ in range(3)]
    return (
        [(task, "held_out") for task in held_out]
        + [(task, "harder") for task in harder]
        + [(make_task("list", 2, rng), "train")]
    )


def episode(task, solves, sample=0, **changes):
    calls = solution(task) if solves else solution(task)[:-2]
    environment = WorkspaceEnvironment()
    environment.reset(task)
    for name, args in calls:
        environment.step(name, args)
    turns = [{"start": 1, "end": 2, "calls": 1, "malformed": 0, "policy_version": 0}]
    values = {
        "id": f"{task.id}-{sample}", "task_id": task.id, "group": task.id, "sample": sample, "seed": 0, "policy_version": 0,
        "temperature": 1.0, "token_ids": [1, 2], "action_mask": [0, 1], "logprobs": [0.0, -0.1], "turns": turns,
        "final_state": environment.snapshot(), "messages": play(task, calls), "stop_reason": "finished",
    }  # fmt: skip
    return Trajectory(**(values | changes))


def write_evaluation(directory, tasks, episodes, rng, skill):
    """What the evaluation stage leaves behind."""
    greedy = directory / "greedy"
    greedy.mkdir(parents=True)
    write_records(greedy / "trajectories.parquet", episodes)
    score(CONFIG, tasks, greedy / "trajectories.parquet", greedy)
    rows = [
        {
            "task_id": task.id,
            "family": task.family,
            "tier": task.tier,
            "greedy": success_of(item),
            "sampled_successes": sum(rng.random() < skill for _ in range(4)),
            "sampled_attempts": 4,
        }
        for task, item in zip(tasks, read_scores(greedy / "scores.parquet"), strict=True)
    ]
    pd.DataFrame(rows).to_parquet(directory / "results.parquet")


@pytest.fixture
def run(tmp_path):
    """The files and figures of a run; `respond` may replace an episode before it is written."""

    def build(respond=None):
        tasks = make_tasks()
        curated = tmp_path / "curated"
        curated.mkdir(parents=True)
        pd.DataFrame([task.to_record() | {"split": split, "attempts": 2, "successes": 1} for task, split in tasks]).to_parquet(
            curated / "tasks.parquet"
        )
        logged = [
            {"task_id": task.id, "split": split, "success": float((index + repeat) % 3 == 0)}
            for index, (task, split) in enumerate(tasks)
            for repeat in range(2)
        ]
        logged[0]["success"] = float("nan")
        pd.DataFrame(logged).to_parquet(curated / "episodes.parquet")
        evaluations = {}
        for key, skill in SKILLS.items():
            rng = random.Random(key)
            evaluations[key] = []
            for split in ("held_out", "harder"):
                chosen = [task for task, of in tasks if of == split]
                odds = skill if split == "held_out" else skill / 2
                episodes = [episode(task, rng.random() < odds) for task in chosen]
                if respond:
                    episodes = [respond(key, item) for item in episodes]
                directory = tmp_path / "evaluations" / key / split
                write_evaluation(directory, chosen, episodes, rng, odds)
                evaluations[key].append(directory)
        new, old = (pd.read_parquet(evaluations[key][0] / "results.parquet") for key in ("rl", "warm_start_verified"))
        verdict = decide(CONFIG.gate, new, old, baseline="warm_start_verified")
        summary = {"gate": verdict.to_record()}
        updates = {
            k: {
                "reward": 0.3 + 0.06 * k,
                "success": 0.3 + 0.06 * k,
                "kl": 0.004 * k,
                "entropy": 0.4 - 0.03 * k,
                "generated_tokens": 80.0 + k,
                "trajectory_tokens": 240.0 + k,
                "zero_variance_share": 0.2 + 0.05 * k,
                "grad_norm": 0.7,
            }
            for k in range(1, 11)
        }
        del updates[4]["kl"]
        validation = {
            k: {"greedy": 0.5 + 0.045 * k, "sampled": 0.4 + 0.05 * k, "harder_greedy": 0.2 + 0.03 * k} for k in range(0, 11, 2)
        }
        results = RunFolders(curated, evaluations, summary["gate"], updates, validation, best_iteration=8)
        return SimpleNamespace(tasks=tasks, curated=curated, evaluations=evaluations, summary=summary, results=results)

    return build
