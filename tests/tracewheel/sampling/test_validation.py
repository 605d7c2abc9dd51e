"""Which iterations are candidates, and how they are ranked."""

import pytest

from tracewheel.config import TrainingConfig
from tracewheel.sampling.validation import best_of, validates, validation_rate


@pytest.mark.parametrize(
    ("iterations", "every", "expected"), [(5, 2, [2, 4, 5]), (4, 2, [2, 4]), (2, 5, [2]), (3, 1, [1, 2, 3])]
)
def test_every_few_iterations_and_the_last_are_validated(iterations, every, expected):
    training = TrainingConfig(iterations=iterations, validate_every=every)
    assert [number for number in range(1, iterations + 1) if validates(training, number)] == expected


def test_candidates_rank_by_the_mean_of_both_rates():
    assert validation_rate({"greedy": {"rate": 0.5}, "sampled": {"rate": 0.25}}) == 0.375


def test_an_unknown_rate_is_not_0_and_is_not_ranked():
    assert validation_rate({"greedy": {"rate": None}, "sampled": {"rate": 0.5}}) is None
    assert best_of({"a": None, "b": 0.0, "c": 0.0}) == "b", "ties go to the earliest"
    assert best_of({"a": None}) is None
