"""Both rubrics side by side: from stored scores to the page, for policies and for validations."""

import pytest

from tracewheel.core.types import Score
from tracewheel.dashboard.curves import rubric_curves, rubrics_of
from tracewheel.scoring.score import write_scores


def score(folder, rewards):
    """Scores of tasks, one episode each: reward and success, None for unscored."""
    folder.mkdir(parents=True)
    rows = [
        Score(f"e-{task}", task, "g", "scored" if reward is not None else "unscored", reward, {"success": float(reward == 1.0)})
        for task, reward in rewards.items()
    ]
    write_scores(folder / "scores.parquet", rows)


def test_means_over_the_tasks_that_both_scored(tmp_path):
    """By hand: of a, b, c, d the held-back rubric leaves c unscored; training 1, 0.5, 0 and held back 0, 1, 0.5."""
    score(tmp_path / "greedy", {"a": 0.0, "b": 1.0, "c": None, "d": 0.5})
    score(tmp_path / "greedy" / "training", {"a": 1.0, "b": 0.5, "c": 1.0, "d": 0.0})
    both = rubrics_of("rl", tmp_path)
    assert (both.reward["training"].value, both.reward["held_back"].value, both.reward["training"].n) == (0.5, 0.5, 3)
    assert both.success["held_back"].value == pytest.approx(1 / 3) and both.success["training"].value == pytest.approx(1 / 3)
    score(tmp_path / "alone" / "greedy", {"a": 1.0})
    assert rubrics_of("rl", tmp_path / "alone") is None


def test_on_validation_the_training_rubric_decides(tmp_path):
    for number, rewards in ((0, (0.25, 0.5)), (2, (0.75, 0.25))):
        for place, reward in zip(("", "held_back"), rewards, strict=True):
            score(tmp_path / str(number) / "sampled" / place, {"a": reward, "b": reward})
    (curve,) = rubric_curves({2: tmp_path / "2", 0: tmp_path / "0", 4: tmp_path / "gone"})
    assert curve.series == {"training": [(0, 0.25), (2, 0.75)], "held back": [(0, 0.5), (2, 0.25)]}
    for (step, low, high), mean in zip(curve.bands["held back"], (0.5, 0.25), strict=True):
        assert (step in (0, 2)) and low < mean < high, "equal values of two tasks leave much open"
    assert rubric_curves({4: tmp_path / "gone"}) == []
