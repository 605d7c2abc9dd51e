"""Tasks gained and lost with their trajectories, and the noise of a policy against itself."""

import math

import pandas as pd
import pytest

from tracewheel.core.types import Score
from tracewheel.evaluation.changes import changed_tasks, noise_floor
from tracewheel.scoring.score import write_scores


@pytest.fixture
def evaluation(tmp_path):
    """Write an evaluation: for each task its greedy success and its sampled successes of four."""

    def write(name, greedy, sampled=None):
        folder = tmp_path / name
        (folder / "greedy").mkdir(parents=True)
        tasks = [f"t{number}" for number in range(len(greedy))]
        sampled = sampled or [2] * len(greedy)
        rows = zip(tasks, greedy, sampled, strict=True)
        pd.DataFrame(
            [
                {"task_id": t, "family": "ab"[n % 2], "greedy": g, "sampled_successes": s, "sampled_attempts": 4}
                for n, (t, g, s) in enumerate(rows)
            ]
        ).to_parquet(folder / "results.parquet")
        scores = [
            Score(f"{name}-{t}", t, t, "unscored" if math.isnan(g) else "scored", g) for t, g in zip(tasks, greedy, strict=True)
        ]
        write_scores(folder / "greedy" / "scores.parquet", scores)
        return folder

    return write


def test_changed_tasks_name_both_trajectories_and_unscored_ones_did_not_change(evaluation):
    new, old = evaluation("new", [1.0, 0.0, 1.0, math.nan, 0.0]), evaluation("old", [0.0, 1.0, 1.0, 1.0, math.nan])
    lost, gained = changed_tasks(new, old)
    assert (lost["task_id"], lost["family"], lost["change"]) == ("t1", "b", "lost")
    assert (gained["task_id"], gained["family"], gained["change"]) == ("t0", "a", "gained")
    assert gained["challenger"] == {"success": 1.0, "trajectory": "new-t0", "file": "new/greedy/trajectories.parquet"}
    assert gained["baseline"] == {"success": 0.0, "trajectory": "old-t0", "file": "old/greedy/trajectories.parquet"}
    assert changed_tasks(new, new) == []


def test_the_noise_of_evaluations_is_that_of_their_pairs_and_never_without_a_width(evaluation):
    first, second = evaluation("first", [1.0, 0.0, math.nan], [4, 2, 0]), evaluation("second", [1.0, 1.0, 1.0], [3, 2, 1])
    settings = {"confidence": 0.95}
    still = noise_floor(first, first, **settings)
    low, high = still["greedy"].pop("interval")
    assert still["greedy"] == {"difference": 0.0, "pairs": 2, "flipped": 0}
    assert low < -0.3 and high > 0.3, "two equal tasks do not say that there is no noise"
    noise = noise_floor(first, second, **settings)
    assert (noise["greedy"]["difference"], noise["greedy"]["flipped"], noise["greedy"]["pairs"]) == (0.5, 1, 2)
    assert noise["sampled"]["difference"] == pytest.approx((-0.25 + 0 + 0.25) / 3)
    assert noise["sampled"]["flipped"] == 2
    assert noise["sampled"]["interval"][0] <= noise["sampled"]["difference"] <= noise["sampled"]["interval"][1]
    nothing = noise_floor(evaluation("nan", [math.nan]), second, **settings)
    assert nothing["greedy"] == {"difference": None, "interval": None, "pairs": 0, "flipped": 0}
