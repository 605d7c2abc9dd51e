"""The gate's verdicts on hand-made results."""

import json
import math

import pandas as pd
import pytest

from tracewheel.config import GateConfig
from tracewheel.core.errors import DataError
from tracewheel.evaluation.gate import decide


def results(greedy, families=("pattern", "list")):
    rows = [(f"task-{i}", families[i % len(families)], value) for i, value in enumerate(greedy)]
    return pd.DataFrame(rows, columns=["task_id", "family", "greedy"])


def verdict(new, old, **config):
    return decide(GateConfig(**config), results(new), results(old), seed=0, baseline="warm_start")


def test_a_significant_gain_is_promoted():
    decision = verdict([1.0] * 90 + [0.0] * 10, [1.0] * 60 + [0.0] * 40)
    assert decision.promoted and decision.verdict == "promoted"
    assert decision.difference == pytest.approx(0.3)
    assert decision.interval is not None and 0.2 < decision.interval[0] < 0.3 < decision.interval[1] < 0.4
    assert decision.families == pytest.approx({"list": 0.3, "pattern": 0.3})
    assert (decision.baseline, decision.pairs, decision.gained, decision.lost) == ("warm_start", 100, 30, 0)
    assert "+0.300" in decision.reasons[0]


def test_an_insignificant_gain_is_refused():
    decision = verdict([1.0] * 10 + [0.0] * 40 + [1.0] * 50, [0.0] * 10 + [1.0] * 6 + [0.0] * 34 + [1.0] * 50)
    assert decision.verdict == "refused"
    assert decision.difference == pytest.approx(0.04)
    assert "not certain" in decision.reasons[0]


def test_mcnemar_refuses_four_gained_tasks_that_the_bootstrap_accepts():
    decision = verdict([1.0] * 4 + [0.0] * 96, [0.0] * 100)
    assert decision.interval is not None and decision.interval[0] > 0.0
    assert decision.p_value == 1 / 16
    assert decision.reasons == [
        "too few tasks differ to be certain of the improvement over warm_start: McNemar's mid-p is 0.062"
    ]
    assert verdict([1.0] * 6 + [0.0] * 94, [0.0] * 100).promoted


def test_no_change_and_a_loss_are_refused():
    assert verdict([1.0, 0.0] * 30, [1.0, 0.0] * 30).interval == [0.0, 0.0]
    assert not verdict([1.0, 0.0] * 30, [1.0, 0.0] * 30).promoted
    assert not verdict([0.0] * 60, [1.0] * 60).promoted


def test_an_interval_that_touches_zero_is_refused():
    new = [1.0] * 3 + [0.0] * 37
    decision = verdict(new, [0.0] * 40)
    assert decision.interval is not None and decision.interval[0] == 0.0
    assert not decision.promoted


def test_a_falling_family_is_refused_despite_an_overall_gain():
    families = ("pattern", "list", "content", "prefix")
    new = results([0.0, 1.0, 1.0, 1.0] * 25, families)
    old = results([0.2, 0.2, 0.2, 0.2] * 25, families)
    decision = decide(GateConfig(family_margin=0.1), new, old, seed=0)
    assert decision.verdict == "refused"
    assert decision.reasons == ["family pattern falls by 0.200, more than 0.10"]
    assert decision.families["pattern"] == pytest.approx(-0.2)
    assert decide(GateConfig(family_margin=0.2), new, old, seed=0).promoted, "a fall of just the margin is allowed"


def test_unscored_episodes_are_left_out_of_the_pairs_and_reported():
    new = [math.nan] * 5 + [1.0] * 55
    old = [0.0] * 55 + [math.nan] * 5
    decision = verdict(new, old)
    assert decision.pairs == 50
    assert decision.difference == 1.0
    assert decision.left_out == {"challenger_unscored": 5, "baseline_unscored": 5, "only_in_one": 0}


def test_too_few_pairs_are_refused_with_the_reason():
    few = verdict([1.0] * 10, [0.0] * 10)
    assert not few.promoted and "only 10 tasks" in few.reasons[0]
    mostly_unscored = verdict([1.0] * 30 + [math.nan] * 70, [0.0] * 100)
    assert not mostly_unscored.promoted and "30 of 100" in mostly_unscored.reasons[0]


def test_no_pair_is_refused_and_the_verdict_is_json():
    decision = verdict([math.nan] * 4, [0.0] * 4)
    assert (decision.verdict, decision.difference, decision.interval) == ("refused", None, None)
    assert any("family list has no task" in reason for reason in decision.reasons)
    json.dumps(decision.to_record(), allow_nan=False)


def test_other_held_out_tasks_are_counted():
    new, old = results([1.0] * 60), results([0.0] * 60)
    old.loc[0, "task_id"] = "another"
    decision = decide(GateConfig(), new, old, seed=0)
    assert decision.pairs == 59 and decision.left_out["only_in_one"] == 2


def test_row_order_does_not_matter():
    new, old = results(([1.0] * 3 + [0.0]) * 25), results(([0.0] + [1.0] * 2 + [0.0]) * 25)
    first = decide(GateConfig(), new, old, seed=0)
    assert first == decide(GateConfig(), new.sample(frac=1, random_state=1), old.sample(frac=1, random_state=2), seed=0)
    assert json.loads(json.dumps(first.to_record(), allow_nan=False))["verdict"] == "promoted"


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda table: table.drop(columns="family"), "lack family"),
        (lambda table: pd.concat([table, table.head(1)]), "more than once: task-0"),
        (lambda table: table.assign(greedy=2.0), "outside 0 to 1"),
    ],
)
def test_invalid_results_are_data_errors(spoil, said):
    with pytest.raises(DataError, match=said):
        decide(GateConfig(), spoil(results([1.0] * 30)), results([0.0] * 30), seed=0)
