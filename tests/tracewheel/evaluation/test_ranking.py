"""Ranking evaluations with missing episodes: compared on the tasks that are scored in all of them."""

import math

import pandas as pd
import pytest

from tracewheel.config import EvaluationConfig
from tracewheel.core.files import write_json
from tracewheel.evaluation.evaluate import EVALUATION_FILE, RESULTS_FILE, summarise
from tracewheel.evaluation.ranking import Evaluation, comparable_rates
from tracewheel.sampling.validation import best_of, validation_rate

HARD, TASKS = 6, 20


@pytest.fixture
def evaluation(tmp_path):
    """Write an evaluation of 20 tasks, of which the first 6 are hard."""

    def write(name, hard, easy, missing=(), modes=("greedy", "sampled")):
        rows = []
        for number in range(TASKS):
            success = float(hard if number < HARD else easy)
            lost = {mode: number in missing and mode in modes for mode in ("greedy", "sampled")}
            rows.append(
                {
                    "task_id": f"t{number}",
                    "family": "hard" if number < HARD else "easy",
                    "tier": 2,
                    "greedy": math.nan if lost["greedy"] else success,
                    "sampled_successes": 0.0 if lost["sampled"] else success,
                    "sampled_attempts": int(not lost["sampled"]),
                }
            )
        results, folder = pd.DataFrame(rows), tmp_path / name
        folder.mkdir()
        results.to_parquet(folder / RESULTS_FILE)
        write_json(folder / EVALUATION_FILE, summarise(EvaluationConfig(samples=1, pass_at=(1,)), results))
        return Evaluation.read(folder)

    return write


def test_rates_are_those_of_the_summaries_where_nothing_is_missing(evaluation):
    both = {"a": evaluation("a", 0, 1), "b": evaluation("b", 1, 1)}
    assert comparable_rates(both) == {name: validation_rate(item.summary) for name, item in both.items()}


def test_a_candidate_that_lost_its_hard_episodes_is_not_ahead(evaluation):
    better = evaluation("better", 0.5, 1)
    lucky = evaluation("lucky", 0, 1, missing=range(HARD))
    assert validation_rate(lucky.summary) > validation_rate(better.summary), "on its own tasks it is"
    rates = comparable_rates({"better": better, "lucky": lucky})
    assert rates == {"better": 1.0, "lucky": 1.0}
    assert best_of(rates) == "better"


def test_a_candidate_with_too_few_scores_is_unranked_and_does_not_shrink_the_comparison(evaluation):
    few = evaluation("few", 1, 1, missing=range(11))
    rates = comparable_rates({"few": few, "a": evaluation("a", 1, 0), "b": evaluation("b", 0, 1)})
    assert rates == {"few": None, "a": HARD / TASKS, "b": 1 - HARD / TASKS}


def test_modes_are_compared_each_on_their_own_tasks(evaluation):
    rates = comparable_rates({"a": evaluation("a", 0, 1, missing=range(HARD), modes=["sampled"]), "b": evaluation("b", 1, 0)})
    assert rates["a"] == pytest.approx(((TASKS - HARD) / TASKS + 1) / 2)
    assert rates["b"] == pytest.approx(HARD / TASKS / 2)


def test_evaluations_without_a_common_task_are_unranked(evaluation):
    halves = {"a": evaluation("a", 1, 1, missing=range(10)), "b": evaluation("b", 1, 1, missing=range(10, TASKS))}
    assert comparable_rates(halves) == {"a": None, "b": None}
