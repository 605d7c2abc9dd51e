"""VAPO's loss on positive examples: by hand, and in an update."""

import math

import pytest
import torch

from tracewheel.core.files import read_records
from tracewheel.core.types import Score, Trajectory
from tracewheel.learner.losses.aggregation import positive_example_loss
from tracewheel.learner.scored_trajectories import read_scored_trajectories, succeeded
from tracewheel.scoring.score import write_scores


def test_it_is_the_mean_negative_logprob_of_the_successes_action_tokens():
    """Two successes with 2 and 1 action tokens, one failure: (0.1 + 0.2 + 0.6) / 3. Other tokens may hold anything."""
    logprobs = torch.tensor([[math.nan, -0.1, -0.2], [-9.0, -9.0, -9.0], [math.inf, -5.0, -0.6]], requires_grad=True)
    mask = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 1]])
    flags = torch.tensor([True, False, True])
    loss = positive_example_loss(logprobs, mask, flags, 3)
    assert loss.item() == pytest.approx(0.3)
    loss.backward()
    third = -1 / 3
    expected = torch.tensor([[0.0, third, third], [0.0, 0.0, 0.0], [0.0, 0.0, third]])
    torch.testing.assert_close(logprobs.grad, expected)
    parts = [positive_example_loss(logprobs[n : n + 1], mask[n : n + 1], flags[n : n + 1], 3) for n in range(3)]
    assert sum(parts).item() == pytest.approx(0.3), "micro-batches add up to the step"
    assert positive_example_loss(logprobs, mask, flags & False, 0).item() == 0.0


def test_successes_are_those_of_the_verifier(trajectories, tmp_path):
    """A reward of 1 by process rewards alone is none; a success that penalties have made cheap is one; unscored is none."""
    rows = [
        (1.2, {"success": 0.0, "process_reward": 1.2}),
        (0.4, {"success": 1.0, "overlong_penalty": 0.6}),
        (None, {}),
        (1.0, {}),
    ]
    episodes = read_records(trajectories, Trajectory)
    scores = [
        Score(t.id, t.task_id, t.group, "unscored" if rows[n % 4][0] is None else "scored", *rows[n % 4])
        for n, t in enumerate(episodes)
    ]
    write_scores(tmp_path / "scores.parquet", scores)
    frame = read_scored_trajectories([trajectories], [tmp_path / "scores.parquet"])
    assert succeeded(frame).tolist() == [False, True, False, True] * (len(episodes) // 4)


def test_an_update_reports_it_and_makes_successes_likelier(run):
    """With every reward equal the surrogate has no gradient: what is left is imitation of the successes."""
    common = {"kl": 0.0, "zero_variance": {"kind": "keep"}, "replay_rows": 0}
    _, without = run(common, rewards=[1.0] * 12)
    _, figures = run(common | {"positive_examples": {"weight": 0.5}, "epochs": 2}, rewards=[1.0] * 12)
    assert "positive_loss" not in without and figures["positive_loss"] > 0
    assert without["grad_norm"] == pytest.approx(0.0, abs=1e-6) and figures["grad_norm"] > 0.01
    assert figures["loss"] == pytest.approx(0.5 * figures["positive_loss"] + figures["policy_loss"], rel=1e-4)
    _, nothing = run(common | {"positive_examples": {"weight": 0.5}}, rewards=[0.0] * 12)
    assert nothing["positive_loss"] == 0.0 and nothing["grad_norm"] == pytest.approx(0.0, abs=1e-6)
