"""The reward model: pairs and splits, calibration by hand and against scikit-learn, training on the tiny base, the verifier."""

import json
import math
import random
from argparse import ArgumentParser

import pandas as pd
import pytest
import torch

from tracewheel import ConfigError, FinishedRun, kind_text, load_tasks, run_named
from tracewheel.core.errors import DataError
from tracewheel.core.kind_table import give
from tracewheel.core.types import Task
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.scoring.verifiers.episode import episode_from
from tracewheel_lab.commands.train_reward_model import COMMAND
from tracewheel_lab.reward_model.calibration import area, fit_platt, pairs_in_order, reliability
from tracewheel_lab.reward_model.examples import Example, pairs_of, split_by_task
from tracewheel_lab.reward_model.scorer import RewardModel, cautious
from tracewheel_lab.reward_model.training import RewardModelSettings, train_reward_model

TASK = Task("t", "e", "f", 1, "p", {}, {}, "reward_model", "t")


def examples(tasks=60):
    """Success is one token among others: what a tiny model learns in seconds."""
    draw = random.Random(0)
    found = []
    for task in range(tasks):
        for sample in range(4):
            success = sample % 2 == 0
            ids = [draw.randrange(50, 200) for _ in range(draw.randrange(6, 12))]
            found.append(Example(f"task{task}", (*ids, 210 if success else 220), success))
    return found


def test_no_task_is_in_two_parts_and_pairs_are_of_one_task():
    parts = split_by_task(examples())
    tasks = {name: {example.task for example in found} for name, found in parts.items()}
    assert not tasks["train"] & tasks["test"] and not tasks["calibrate"] & (tasks["train"] | tasks["test"])
    pairs = pairs_of([Example("a", (1,), True), Example("a", (2,), False), Example("b", (3,), False)], 5, 0)
    assert [tuple(pair) for pair in pairs] == [((1,), (2,))]


def test_figures_by_hand():
    """Scores 3, 2, 2, 1 with labels 1, 1, 0, 0: of four pairs three are in order and one ties: 3.5 / 4."""
    scores, labels = [3.0, 2.0, 2.0, 1.0], [True, True, False, False]
    assert area(scores, labels) == 0.875 and area([1.0], [True]) is None
    assert pairs_in_order(["a", "a", "a", "b"], scores, labels) == 0.75
    rows, error = reliability([0.1, 0.15, 0.95, 1.0], [False, True, True, True])
    assert [row["n"] for row in rows] == [2, 2]
    assert error == pytest.approx((2 * abs(0.125 - 0.5) + 2 * abs(0.975 - 1.0)) / 4)
    values = torch.tensor([[1.0, 4.0], [3.0, 4.0]])
    assert cautious(values, 0.5).tolist() == [1.5, 4.0]


def test_platt_is_finite_where_scores_separate_and_the_area_is_scikit_learns():
    platt = fit_platt([-2.0, -1.0, 1.0, 2.0], [False, False, True, True])
    assert math.isfinite(platt.slope) and platt.probability(2.0) > 0.6 > 0.4 > platt.probability(-2.0)
    metrics = pytest.importorskip("sklearn.metrics")
    draw = random.Random(1)
    labels = [draw.random() < 0.4 for _ in range(50)]
    scores = [round(draw.gauss(label, 1), 1) for label in labels]
    assert area(scores, labels) == pytest.approx(metrics.roc_auc_score(labels, scores))


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("reward_model")
    settings = RewardModelSettings(members=2, epochs=3, learning_rate=1e-3)
    return out, train_reward_model(base, examples(), settings, out)


def test_it_learns_what_success_looks_like_on_tasks_it_never_saw(trained):
    _, about = trained
    assert about["test"]["auc"] > 0.9 and about["test"]["auc_interval"][0] > 0.6
    assert about["test"]["reliability"] and about["calibrate"]["tasks"] > 0


def test_scores_do_not_depend_on_the_batch_and_the_verifier_gives_them(trained):
    out, about = trained
    rows = [example.token_ids for example in examples(3)]
    model = RewardModel(out)
    together = model.scores(rows)
    assert together == pytest.approx([model.scores([row])[0] for row in rows], abs=1e-4)
    verifier = make_verifier(give(json.dumps({"kind": "reward_model", "args": {"folder": str(out)}})))
    episode = episode_from([], 0, {}, token_ids=rows[0])
    said = verifier.verify_episode(TASK, episode)
    assert said == verifier.verify_episode(TASK, episode) and said.total == said.parts["probability"]
    assert said.total == pytest.approx(1 / (1 + math.exp(-(about["slope"] * together[0] + about["shift"]))), abs=1e-3)
    with pytest.raises(ValueError, match="no token ids"):
        verifier.verify_episode(TASK, episode_from([], 0, {}))


def test_what_cannot_be_trained_or_read_is_said(tmp_path, base):
    with pytest.raises(DataError, match="pairs of a success and a failure"):
        train_reward_model(base, examples(2), RewardModelSettings(), tmp_path)
    with pytest.raises(DataError, match="train-reward-model"):
        RewardModel(tmp_path)


def test_the_episodes_of_evaluations_are_left_out(shown, run_ids, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        "tracewheel_lab.reward_model.training.train_reward_model",
        lambda base, examples, settings, out: given.extend(examples) or {"pairs": 0, "test": {}},
    )
    parser = ArgumentParser()
    COMMAND.options(parser)
    options = parser.parse_args([run_ids[-1], "--run-dir", str(shown), "--out", str(tmp_path / "out")])
    options.debug = False
    COMMAND.run(options)
    run = FinishedRun(run_named(run_ids[-1], str(shown)))
    files = [path for entry in run.entries for path in entry.path.rglob("trajectories.parquet")]
    played = {task for path in files for task in pd.read_parquet(path, columns=["task_id"])["task_id"]}
    training = {task.id for task in load_tasks(run.curated, "train")}
    assert played - training and {each.task for each in given} == played & training


@pytest.mark.parametrize("folder", ["/etc", "\ud83d"])
def test_data_alone_names_no_folder(folder):
    with pytest.raises(ConfigError, match="name it"):
        make_verifier(kind_text("reward_model", {"folder": folder}))
