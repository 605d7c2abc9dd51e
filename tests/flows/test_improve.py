"""What the terminal says of a candidate: a rate over few tasks is not passed off as one over all."""

import pytest

from flows.improve import in_words


@pytest.mark.parametrize(
    ("greedy", "sampled", "said"),
    [
        ((0.5, 20), (0.25, 20), "greedy 0.500, sampled 0.250"),
        ((1.0, 3), (0.25, 20), "greedy 1.000 (3 of 20 tasks scored), sampled 0.250"),
        ((None, 0), (0.25, 7), "greedy unknown (0 of 20 tasks scored), sampled 0.250 (7 of 20 tasks scored)"),
    ],
)
def test_a_rate_says_of_how_many_tasks_it_is_where_not_all_were_scored(greedy, sampled, said):
    result = {"tasks": 20} | {
        mode: {"rate": rate, "n": n} for mode, (rate, n) in {"greedy": greedy, "sampled": sampled}.items()
    }
    assert in_words(result) == said
