"""Evaluation: the rows of the results, and the figures computed from them."""

import dataclasses
import json
import math
import re

import pandas as pd
import pytest
from pydantic import ValidationError

from tracewheel.config import EvaluationConfig, RetrainConfig, RubricConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_records
from tracewheel.core.inference import wilson_interval
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.evaluation.evaluate import MODES, evaluate, samples_on, summarise, write_evaluation
from tracewheel.policy.adapters import PolicyRef
from tracewheel.scoring.score import read_scores

SAMPLES = 2


class Unreachable(WorkspaceEnvironment):
    """A user's environment that is down."""

    def step(self, tool, args):
        raise ConnectionError("gone")

    def reset(self, task):
        raise ConnectionError("gone")


@pytest.fixture(scope="module")
def some_tasks(tasks):
    """Five tasks; the last one cannot be run."""
    return [*tasks[:4], dataclasses.replace(tasks[4], environment=f"{__name__}:{Unreachable.__name__}")]


@pytest.fixture(scope="module")
def small(config):
    evaluation = EvaluationConfig(samples=SAMPLES, pass_at=(1, 2))
    return config.model_copy(update={"evaluation": evaluation})


@pytest.fixture(scope="module")
def evaluated(small, base, some_tasks, tmp_path_factory):
    out = tmp_path_factory.mktemp("evaluation")
    return out, evaluate(small, PolicyRef(base), some_tasks, out, samples=SAMPLES, seed=3)


def test_results_match_the_scores(evaluated, some_tasks):
    out, summary = evaluated
    assert "objectives" not in summary, "the rubric has none"
    results = pd.read_parquet(out / "results.parquet")
    assert results["task_id"].tolist() == [task.id for task in some_tasks]
    assert results["family"].tolist() == [task.family for task in some_tasks]
    assert results["tier"].tolist() == [task.tier for task in some_tasks]
    greedy = {
        score.task_id: score.breakdown.get("success", math.nan) for score in read_scores(out / "greedy" / "scores.parquet")
    }
    assert results["greedy"].tolist()[:-1] == [greedy[task.id] for task in some_tasks[:-1]]
    sampled = [score for score in read_scores(out / "sampled" / "scores.parquet") if score.status == "scored"]
    for row in results.itertuples():
        own = [score.breakdown["success"] for score in sampled if score.task_id == row.task_id]
        assert (row.sampled_successes, row.sampled_attempts) == (sum(own), len(own))


def test_without_tasks_no_rate_is_known(small, base, tmp_path):
    """The harder tier of a profile with `harder_tasks: 0`."""
    summary = evaluate(small, PolicyRef(base), [], tmp_path, samples=SAMPLES, seed=3)
    assert [summary[mode]["rate"] for mode in ("greedy", "sampled")] == [None, None]
    assert len(pd.read_parquet(tmp_path / "results.parquet")) == summary["tasks"] == summary["episodes"] == 0
    assert read_records(tmp_path / "greedy" / "trajectories.parquet", Trajectory) == []


def test_infrastructure_failures_are_unscored(evaluated, some_tasks):
    out, summary = evaluated
    last = pd.read_parquet(out / "results.parquet").iloc[-1]
    assert math.isnan(last["greedy"])
    assert (last["sampled_successes"], last["sampled_attempts"]) == (0, 0)
    assert summary["greedy"]["n"] == summary["sampled"]["n"] == len(some_tasks) - 1
    assert [last[f"{mode}_{what}"] for mode in ("greedy", "sampled") for what in ("unscored", "failed")] == [0, 1, 0, SAMPLES]
    assert summary["missing"] == {
        "greedy": {"unscored": 0, "infrastructure_failed": 1},
        "sampled": {"unscored": 0, "infrastructure_failed": SAMPLES},
    }
    broken = summary["by_family"][some_tasks[-1].family]
    assert broken["greedy"]["rate"] is None and broken["sampled"]["rate"] is None


def test_one_greedy_and_several_sampled_episodes_per_task(evaluated, some_tasks):
    out, summary = evaluated
    for mode, count in (("greedy", 1), ("sampled", SAMPLES)):
        trajectories = read_records(out / mode / "trajectories.parquet", Trajectory)
        assert [(t.task_id, t.sample) for t in trajectories] == [(task.id, s) for task in some_tasks for s in range(count)]
    assert summary["episodes"] == len(some_tasks) * (1 + SAMPLES)
    spoken = [
        sum(t.action_mask)
        for mode in ("greedy", "sampled")
        for t in read_records(out / mode / "trajectories.parquet", Trajectory)
    ]
    assert summary["generated_tokens"] == sum(spoken)


def test_the_summary_is_stored_and_follows_from_the_results(evaluated, small):
    out, summary = evaluated
    assert json.loads((out / "evaluation.json").read_text()) == summary
    again = summarise(small.evaluation, pd.read_parquet(out / "results.parquet"))
    assert again == {key: summary[key] for key in again}


def test_equal_inputs_give_equal_bytes(evaluated, small, base, some_tasks, tmp_path, files_of):
    calls = []
    evaluate(
        small, PolicyRef(base), some_tasks, tmp_path, samples=SAMPLES, seed=3, progress=lambda done, total: calls.append(total)
    )  # fmt: skip
    assert files_of(tmp_path) == files_of(evaluated[0])
    assert set(calls) == {len(some_tasks), len(some_tasks) * SAMPLES}


def test_the_harder_tier_is_played_greedily_alone(small):
    samples = small.evaluation.samples
    assert [samples_on(split, small.evaluation) for split in ("validation", "held_out", "harder")] == [1, samples, 0]


RESULTS = pd.DataFrame(
    [
        ("a", "pattern", 2, 1.0, 2.0, 2),
        ("b", "pattern", 3, 0.0, 1.0, 2),
        ("c", "list", 2, 1.0, 0.0, 2),
        ("d", "list", 3, math.nan, 1.0, 1),
        ("e", "list", 3, math.nan, 0.0, 0),
    ],
    columns=["task_id", "family", "tier", "greedy", "sampled_successes", "sampled_attempts"],
)


def test_objectives_are_the_mean_of_both_modes_scored_episodes(small, base, some_tasks, tmp_path):
    objectives = [
        {"kind": "part", "name": "safety", "part": "workspace.untouched"},
        {"kind": "cost", "name": "thrift", "budget": 400},
    ]
    config = small.model_copy(update={"rubric": RubricConfig.model_validate({"objectives": objectives})})
    summary = evaluate(config, PolicyRef(base), some_tasks, tmp_path, samples=SAMPLES, seed=3)
    for name in ("safety", "thrift"):
        means = []
        for mode in ("greedy", "sampled"):
            scored = [score for score in read_scores(tmp_path / mode / "scores.parquet") if score.status == "scored"]
            means.append(sum(score.breakdown[f"objective.{name}"] for score in scored) / len(scored))
        assert summary["objectives"][name] == pytest.approx(sum(means) / 2)
    assert 0.0 < summary["objectives"]["thrift"] < 1.0
    failed = {
        mode: [score for score in read_scores(tmp_path / mode / "scores.parquet") if score.total is None] for mode in MODES
    }
    down = write_evaluation(small.evaluation, config.rubric, some_tasks[-1:], failed, tmp_path, {})
    assert down["objectives"] == {"safety": None, "thrift": None}


def test_episodes_that_failed_are_said_and_too_many_are_refused(evaluated, small, base, some_tasks, tmp_path):
    cause = r"ConnectionError in reset \(tests/tracewheel/evaluation/test_evaluate.py:\d+\)"
    words = evaluated[1]["without_score"]
    assert re.fullmatch(f"1 of 5 episodes have no score, 1 of them by {cause}", words["greedy"])
    assert words["sampled"].startswith(f"{SAMPLES} of {5 * SAMPLES} episodes have no score")
    with pytest.raises(DataError, match=f"1 of 1 episodes have no score, 1 of them by {cause}"):
        evaluate(small, PolicyRef(base), some_tasks[-1:], tmp_path, samples=SAMPLES, seed=3)


def test_summary_of_hand_made_results():
    summary = summarise(EvaluationConfig(samples=2, pass_at=(1, 2)), RESULTS)
    assert summary["greedy"] == {"rate": 2 / 3, "interval": list(wilson_interval(2, 3)), "n": 3}
    assert summary["sampled"]["rate"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert summary["sampled"]["n"] == 4
    low, high = summary["sampled"]["interval"]
    assert 0 <= low < summary["sampled"]["rate"] < high <= 1
    assert summary["pass_at"]["1"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert summary["pass_at"]["2"] == pytest.approx((1 + 1 + 0) / 3), "only of tasks with two scored episodes"
    assert {tier: part["greedy"]["rate"] for tier, part in summary["by_tier"].items()} == {"2": 1.0, "3": 0.0}
    assert {family: part["sampled"]["n"] for family, part in summary["by_family"].items()} == {"list": 2, "pattern": 2}


def test_unscored_tasks_have_no_rate():
    summary = summarise(EvaluationConfig(samples=1, pass_at=(1,)), RESULTS[4:])
    assert summary["greedy"]["rate"] is None and summary["greedy"]["n"] == 0
    assert summary["sampled"] == {"rate": None, "interval": [0.0, 1.0], "n": 0}
    assert summary["pass_at"] == {"1": None}


def test_a_rubric_that_is_held_back_decides_on_held_out_tasks_alone(small, base, some_tasks, tmp_path):
    """It wants the opposite of what the verifier wants; on validation the training rubric decides."""
    held_back = RubricConfig.model_validate({"verifiers": [{"kind": f"{__name__}:Contrary"}]})
    evaluation = small.evaluation.model_copy(update={"rubric": held_back})
    config = small.model_copy(update={"evaluation": evaluation})
    rates = {}
    for held_out in (False, True):
        out = tmp_path / str(held_out)
        summary = evaluate(config, PolicyRef(base), some_tasks[:4], out, samples=1, seed=3, held_out=held_out)
        rates[held_out] = summary["greedy"]["rate"]
        training, gate = (summary["judges"][name]["greedy"]["success"] for name in ("training", "held_back"))
        assert training + gate == 1.0 and rates[held_out] == (gate if held_out else training)
        assert (out / "greedy" / ("training" if held_out else "held_back") / "scores.parquet").is_file()
    assert rates[False] + rates[True] == 1.0


class Contrary:
    """Passes what the workspace's verifier fails."""

    kind = f"{__name__}:Contrary"

    def verify(self, task, final_state):
        from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier

        return 1.0 - WorkspaceVerifier().verify(task, final_state)[0], {}


def test_the_judge_of_training_is_not_the_judge_of_the_gate():
    def judged(model, ask):
        args = {"models": [{"endpoint": "http://localhost:1/v1", "model": model}], "criteria": [{"name": "a", "ask": ask}]}
        return {"verifiers": [{"kind": "judge", "args": args}]}

    def profile(training, gate):
        return RetrainConfig.model_validate({"name": "p", "rubric": training, "evaluation": {"rubric": gate}})

    with pytest.raises(ValidationError, match="is not evaluated by it"):
        profile(judged("m", "Is it?"), judged("m", "Is it?"))
    assert profile(judged("m", "Is it?"), judged("n", "Is it?")) and profile(judged("m", "Is it?"), judged("m", "Was it?"))
