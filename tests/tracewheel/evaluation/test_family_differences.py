"""Paired differences by family: worked out by hand."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from tracewheel.core.errors import DataError
from tracewheel.evaluation.family_differences import paired_differences


def table(**greedy):
    rows = [
        {"task_id": task, "tier": 1, "family": task.partition("_")[0], "greedy": rate, "sampled_successes": 2 * rate}
        for task, rate in greedy.items()
    ]
    return pd.DataFrame(rows).assign(sampled_attempts=2)


def test_tasks_of_both_are_paired_family_by_family():
    run, base = table(list_0=1.0, list_1=0.0, move_0=1.0, move_1=0.0), table(list_0=0.0, move_0=1.0, move_1=1.0, move_9=1.0)
    found = paired_differences(run, base, greedy_weight=0.5)
    rows = {row["family"]: (row["tasks"], row["pairs"], row["difference"]) for row in found["rows"]}
    assert rows == {"all families": (3, 3, 0.0), "list": (1, 1, 1.0), "move": (2, 2, -0.5)}
    assert found["sampled"]


def test_p_values_are_those_of_all_sign_flips():
    run, base = table(move_0=0.0, move_1=1.0, move_2=0.0), table(move_0=0.0, move_1=0.0, move_2=0.0)
    row = paired_differences(run, base, greedy_weight=1.0)["rows"][1]
    sums = [np.dot(signs, [0.0, 1.0, 0.0]) for signs in product((-1, 1), repeat=3)]
    assert row["p"] == min(1.0, 2 * np.mean(np.array(sums) >= 1.0))
    assert not row["stands_out"]


def test_a_task_that_is_there_twice_is_refused():
    twice = pd.concat([table(move_0=1.0)] * 2)
    with pytest.raises(DataError, match="the base"):
        paired_differences(table(move_0=1.0), twice, greedy_weight=1.0)
