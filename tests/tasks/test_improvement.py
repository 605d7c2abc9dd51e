"""How the terminal shows a candidate's rates."""

import pytest

from tasks.records.improvement import in_words


@pytest.mark.parametrize(
    ("greedy", "sampled", "said"),
    [
        ((0.5, 20), (0.25, 20), "greedy 0.500, sampled 0.250"),
        ((1.0, 3), (0.25, 20), "greedy 1.000 (3 of 20 tasks scored), sampled 0.250"),
        ((None, 0), (0.25, 7), "greedy unknown (0 of 20 tasks scored), sampled 0.250 (7 of 20 tasks scored)"),
    ],
)
def test_a_rate_names_the_number_of_scored_tasks_when_some_were_not(greedy, sampled, said):
    result = {"tasks": 20} | {
        mode: {"rate": rate, "n": n} for mode, (rate, n) in {"greedy": greedy, "sampled": sampled}.items()
    }
    assert in_words(result) == said
