"""Dynamic sampling in the loop: its rounds, what the update gets, and the same rounds after a resume."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from flows import improve as loop
from flows import sources
from tracewheel.config import RetrainConfig
from tracewheel.core.store import Entry
from tracewheel.core.types import Score
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.scoring.score import SCORES_FILE, write_scores

TASKS = [f"task-{number:02}" for number in range(20)]


@pytest.fixture
def gather(tmp_path, monkeypatch):
    """A synchronous loop's `gather` whose stages write scores by a rule instead of playing, and the calls they got."""
    calls = []

    def entry(stage, scores=()):
        folder = tmp_path / f"{stage}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        write_scores(folder / SCORES_FILE, list(scores))
        rewards = [score.total for score in scores]
        return Entry(stage, "", folder, "", 0.0, {"scored": len(rewards), "success": sum(rewards) / max(1, len(rewards))})

    def roll_out(run, **arguments):
        calls.append(arguments)
        rolled_out = entry("rollout")
        return replace(rolled_out, result={"episodes": 8.0 * len(arguments["task_ids"])})

    def run(signal, episodes=None, used=0, tasks=6, **learner):
        def score(run, *, trajectories, **arguments):
            rewards = {task: [1.0, 0.0 if task in signal else 1.0] for task in calls[-1]["task_ids"]}
            return entry("score", [Score(f"{t}-{i}", t, t, "scored", r) for t, rs in rewards.items() for i, r in enumerate(rs)])

        monkeypatch.setattr(sources, "roll_out", roll_out)
        monkeypatch.setattr(sources, "score_trajectories", score)
        training = {"tasks_per_iteration": tasks, "episodes": episodes}
        config = RetrainConfig.model_validate({"name": "t", "training": training, "learner": learner})
        calls.clear()
        sampler = TaskSampler(config.sampler, TASKS, seed=1)
        source = sources.Source(SimpleNamespace(config=config), entry("curate"), sampler)
        trajectories, scores = source.gather(None, iteration=1, used=used)
        return trajectories, scores, list(calls), config

    return run


def rounds_of(calls):
    return [call["task_ids"] for call in calls]


def test_there_is_one_round_without_dynamic_sampling(gather):
    trajectories, scores, calls, config = gather(signal=set(), kind="grpo")
    assert len(trajectories) == len(scores) == 1
    assert rounds_of(calls) == [TaskSampler(config.sampler, TASKS, seed=1).select(6, 1)]


def test_rounds_take_untried_tasks_until_enough_groups_differ(gather):
    first = TaskSampler(RetrainConfig(name="t").sampler, TASKS, seed=1).select(6, 1)
    signal = {*first[:2], *(task for task in TASKS if task not in first)}
    trajectories, scores, calls, config = gather(signal=signal, kind="dapo", zero_variance={"kind": "dynamic", "min_groups": 4})
    rounds = rounds_of(calls)
    assert rounds[0] == first
    assert [len(tasks) for tasks in rounds] == [6, 6]  # 2 are missing, and 2 of 6 carry a signal
    assert not set(rounds[0]) & set(rounds[1])
    assert [call["refill"] for call in calls] == [0, 1]
    assert len(trajectories) == len(scores) == 2
    figures = loop.sampling_figures(config.learner, sources.score_files(scores))
    assert figures == {"sampling_rounds": 2.0, "sampled_groups": 12.0, "signal_groups": 8.0, "sampling_capped": 0.0}
    # 12 groups of two: in 8 one of two succeeds, in 4 both.
    assert loop.success_of_rounds([entry.result for entry in scores]) == pytest.approx(16 / 24)


def test_rounds_stop_at_the_cap_and_when_no_tasks_are_left(gather):
    settings = {"kind": "dynamic", "min_groups": 3}
    _, scores, calls, config = gather(signal=set(), tasks=3, kind="grpo", zero_variance=settings)
    assert [len(tasks) for tasks in rounds_of(calls)] == [3, 3, 3, 3]
    assert loop.sampling_figures(config.learner, sources.score_files(scores))["sampling_capped"] == 1.0
    _, scores, calls, config = gather(signal=set(), kind="grpo", zero_variance=settings)
    assert [len(tasks) for tasks in rounds_of(calls)] == [6, 6, 6, 2], "no task twice in an iteration"
    assert sorted(task for tasks in rounds_of(calls) for task in tasks) == TASKS
    assert loop.sampling_figures(config.learner, sources.score_files(scores))["sampling_capped"] == 1.0


def test_rounds_stay_within_the_budget_of_episodes(gather):
    settings = {"kind": "dynamic", "min_groups": 3}
    # 100 are used and 48 by the first round; 20 are left, which is two groups of 8.
    _, scores, calls, config = gather(signal=set(), episodes=168, used=100, kind="grpo", zero_variance=settings)
    assert [len(tasks) for tasks in rounds_of(calls)] == [6, 2]
    assert loop.sampling_figures(config.learner, sources.score_files(scores))["sampling_capped"] == 1.0


def test_a_repeated_iteration_takes_the_same_rounds(gather):
    settings = {"kind": "dynamic", "min_groups": 5}
    runs = [rounds_of(gather(signal=set(TASKS[::4]), kind="grpo", zero_variance=settings)[2]) for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 1


@pytest.mark.slow
def test_a_whole_run_updates_on_all_rounds_and_is_reused(profile, command, tmp_path):
    settings = "learner={kind: dapo, zero_variance: {kind: dynamic, min_groups: 64}, replay_rows: 0}"
    options = ("--run-dir", tmp_path, "--json", "--set", settings, "--set", "training.tasks_per_iteration=4")
    done = command("retrain", profile, *options)
    assert done.returncode in (0, 3), done.stderr
    summary = json.loads(done.stdout)
    store = tmp_path / "store"
    rollouts = [pd.read_parquet(folder / "trajectories.parquet") for folder in store.glob("rollout-*")]
    assert len(rollouts) == 4, "two iterations, each with one refill"
    assert len(list(store.glob("score-*"))) == 4
    trained = [json.loads((folder / "metrics.json").read_text()) for folder in store.glob("update-*")]
    episodes = sum(map(len, rollouts)) / len(trained)
    generated = sum(table["action_mask"].map(sum).sum() for table in rollouts)
    # The update's figure is a mean over episodes: each of the two updates had both rounds'.
    assert sum(row["generated_tokens"] * episodes for row in trained) == pytest.approx(generated)
    assert "rollout 1 of 2, refill 1" in done.stderr
    again = command("retrain", profile, *options)
    assert set(json.loads(again.stdout)["cached"]) == set(summary["seconds"])
    plan = json.loads(command("retrain", profile, *options, "--dry-run").stdout)
    assert plan["complete"]
    assert {stage["stage"]: stage["stored"] for stage in plan["stages"]}["rollout"] == 2, "one round an iteration is planned"
    assert Path(summary["report"]).is_file()
