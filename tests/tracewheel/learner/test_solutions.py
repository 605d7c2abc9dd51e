"""Solutions of lost tasks: where they come from, and what an update makes of them."""

import json

import pandas as pd
import pytest
import torch

from tracewheel.config import RetrainConfig, SolutionSections
from tracewheel.core.errors import LeakError
from tracewheel.core.files import read_records, read_table
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, play
from tracewheel.learner.batch import TokenisedText
from tracewheel.learner.per_token import add_cross_entropy
from tracewheel.learner.solutions import SOLUTIONS_FILE, find_solutions
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.loading import policy_renderer


def episode(task, success=1.0, split="train"):
    said = {"messages": json.dumps(play(task, solution(task))), "tools": json.dumps(TOOLS)}
    return {"trace_id": f"trace-{task.id}", "task_id": task.id, "split": split, "success": success, "failure": "", **said}


@pytest.fixture
def curated(tasks, tmp_path):
    """Three training tasks, the first of which somebody solved, and a held-out one."""
    folder, splits = tmp_path / "curated", ["train"] * 3 + ["held_out"]
    folder.mkdir()
    chosen = [*tasks[::3][:3], tasks[1]]
    pd.DataFrame([t.to_record() | {"split": s} for t, s in zip(chosen, splits, strict=True)]).to_parquet(
        folder / "tasks.parquet"
    )
    rows = [
        episode(task, float(number in (0, 3)), split) for number, (task, split) in enumerate(zip(chosen, splits, strict=True))
    ]
    pd.DataFrame(rows).to_parquet(folder / "episodes.parquet")
    return folder


@pytest.fixture
def played(trajectories, rewards, success_file, tmp_path):
    """The folders of a rollout of the three tasks and of its scores, in which each was solved once."""
    folders = tmp_path / "rollout", tmp_path / "score"
    for folder in folders:
        folder.mkdir()
    (folders[0] / "trajectories.parquet").symlink_to(trajectories)
    success_file(folders[1] / "scores.parquet", trajectories, rewards)
    return folders


@pytest.fixture
def taught(tmp_path):
    def write(task):
        folder = tmp_path / f"taught-{task.id}"
        folder.mkdir()
        pd.DataFrame([episode(task)]).to_parquet(folder / "episodes.parquet")
        return folder

    return write


def sections(config, **lost_tasks):
    learner = config.learner.model_copy(
        update={"lost_tasks": RetrainConfig(name="t", learner={"lost_tasks": lost_tasks}).learner.lost_tasks}
    )
    return SolutionSections.of(config.model_copy(update={"learner": learner}))


def test_each_lost_task_has_its_first_source_and_its_own_successes_are_the_tokens_that_were_sampled(
    config, curated, played, taught, tasks, trajectories, tmp_path
):
    one, two, three = tasks[::3][:3]
    logs = find_solutions(sections(config), curated, [one.id, two.id], tmp_path / "logs", taught=[taught(two)])
    assert logs == {"lost": 2, "sources": dict(sorted({one.id: "logs", two.id: "teacher"}.items()))}
    rows = read_table(tmp_path / "logs" / SOLUTIONS_FILE).set_index("task_id")
    spoken = policy_renderer(config.policy).conversation(play(two, solution(two)), TOOLS)
    assert rows.loc[two.id, "input_ids"].tolist() == spoken.ids
    assert rows.loc[two.id, "assistant_masks"].tolist() == spoken.mask
    both = find_solutions(
        sections(config, sources=["own", "logs"]), curated, [one.id, three.id], tmp_path / "own", own=[played]
    )
    assert set(both["sources"].values()) == {"own"}
    rows = read_table(tmp_path / "own" / SOLUTIONS_FILE).set_index("task_id")
    sampled = [
        t for number, t in enumerate(read_records(trajectories, Trajectory)) if number % 4 == 1 and t.task_id == three.id
    ]
    assert rows.loc[three.id, "input_ids"].tolist() == sampled[0].token_ids
    assert rows.loc[three.id, "assistant_masks"].tolist() == sampled[0].action_mask


def test_what_nobody_solved_has_none_and_no_held_out_task_is_shown(config, curated, taught, tasks, tmp_path):
    lost, held_out = tasks[6], tasks[1]
    assert find_solutions(sections(config), curated, [lost.id, held_out.id], tmp_path / "out")["sources"] == {}
    assert not (tmp_path / "out" / SOLUTIONS_FILE).exists()
    with pytest.raises(LeakError, match="not in the training split"):
        find_solutions(sections(config), curated, [lost.id], tmp_path / "out", taught=[taught(held_out)])


@pytest.fixture
def solved(config, curated, taught, tasks, tmp_path):
    """A file of three solutions."""
    lost = [task.id for task in tasks[::3][:3]]
    find_solutions(sections(config), curated, lost, tmp_path / "solved", taught=[taught(task) for task in tasks[3:7:3]])
    return tmp_path / "solved" / SOLUTIONS_FILE


@pytest.fixture
def learn(profile_with, success_file, trajectories, rewards, adapter, tmp_path):
    """An update with solutions; its figures and its folder."""

    def run(solutions, name, learner=None, rewards=rewards, iteration=1, **lost_tasks):
        scores = success_file(tmp_path / f"{name}.parquet", trajectories, rewards)
        files = UpdateFiles([trajectories], [scores], adapter.parent, adapter, tmp_path / name, solutions)
        given = {"minibatches": 1, **(learner or {}), "lost_tasks": lost_tasks or {"rows": 3}}
        assert UpdateFiles.from_json(files.to_json()).solutions == solutions
        return update(profile_with(given), files, iteration=iteration), tmp_path / name

    return run


@pytest.mark.parametrize("kind", ["grpo", "ppo", "rejection_sampling"])
def test_solutions_move_the_policy_and_reach_no_other_figure(learn, solved, same_weights, kind):
    without, before = learn(None, "without", {"kind": kind}, iteration=9)
    shown, after = learn(solved, "shown", {"kind": kind}, iteration=9)
    assert shown.pop("solutions_loss") > 0.0
    assert not same_weights(before, after)
    for figures in (without, shown):
        figures.pop("grad_norm")
    assert shown == pytest.approx(without), "ratio, KL, mismatch and advantages are of sampled tokens alone"


def test_their_gradient_is_that_of_the_weighted_mean_log_likelihood_of_their_action_tokens(config, base, adapter, solved):
    """Beside a second way to reach it: transformers' own loss on labels."""
    from peft import PeftModel

    from tracewheel.policy.loading import load_base

    model = PeftModel.from_pretrained(load_base(config.policy, base), adapter, is_trainable=True)
    text = TokenisedText(solved, base, "learner.lost_tasks", 3, 4096)

    class Backend:
        def __init__(self):
            self.model = model

        def shard(self, batches):
            return batches

        def backward(self, loss):
            loss.backward()

    import random

    loss = add_cross_entropy(Backend(), text.draw(random.Random(0)), "shared_prefix", 0.5)
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    total, tokens = 0.0, 0
    for row in read_table(solved).itertuples():
        ids, mask = torch.tensor([row.input_ids.tolist()]), torch.tensor([row.assistant_masks.tolist()])
        count = int(mask[:, 1:].sum())
        labels = ids.masked_fill(mask == 0, -100)
        total = total + model(input_ids=ids, labels=labels).loss * count
        tokens += count
    (0.5 * total / tokens).backward()
    assert loss == pytest.approx(total.item() / tokens, rel=1e-4)
    for name, parameter in model.named_parameters():
        if name in ours:
            torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-3, atol=1e-6)


def test_where_every_group_is_lost_only_solutions_teach(learn, solved, rewards):
    lost = [0.0] * len(rewards)
    nothing, _ = learn(None, "nothing", rewards=lost)
    assert nothing["steps"] == 0.0
    shown, _ = learn(solved, "shown", {"minibatches": 2}, rewards=lost, iteration=2)
    assert shown["steps"] == 2.0 and shown["solutions_loss"] > 0.0


def test_the_first_update_only_imitates_where_most_groups_are_lost_and_the_profile_asks(learn, solved, rewards):
    most = [float(number == 1) for number in range(len(rewards))]
    first, _ = learn(solved, "first", rewards=most, rows=2, at_start=5)
    assert first["steps"] == 10.0 and "policy_loss" not in first, "three solutions are two steps an epoch"
    later, _ = learn(solved, "later", rewards=most, iteration=2, rows=2, at_start=5)
    assert "policy_loss" in later
    few, _ = learn(solved, "few", rows=2, at_start=5)
    assert "policy_loss" in few, "no group is lost whole"
