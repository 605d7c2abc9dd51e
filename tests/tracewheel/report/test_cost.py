"""What a run cost, in all and for each point gained."""

from tracewheel.report.cost import Cost, cost_of_run, cost_per_point, priced


def test_money_needs_a_price():
    assert priced(3600.0, 2_000_000, (2.0, 0.5), "EUR") == Cost(3600.0, 2_000_000, 3.0, "EUR")
    assert priced(3600.0, 2_000_000, (None, None), "EUR").money is None


def test_cost_per_point_is_unknown_when_nothing_was_gained():
    cost = priced(600.0, 1000, (6.0, None), "EUR")
    assert cost_per_point(cost, 0.05, True) == {"seconds": 120.0, "tokens": 200.0, "money": 0.2}
    for gain, promoted in ((0.05, False), (-0.01, True), (None, True)):
        assert set(cost_per_point(cost, gain, promoted).values()) == {None}


def test_a_run_says_what_a_point_cost_or_that_none_was_gained():
    costs = {"seconds": {"update": 500.0, "evaluate": 100.0}, "tokens": {"rollout": 1000}}
    promoted = {"verdict": "promoted", "difference": 0.06, "expected_gain": 0.05}
    found = cost_of_run(costs, promoted, (6.0, None), "EUR")
    assert found["gain"] == 0.05 and found["cost"]["money"] == 1.0
    assert found["says"] == (
        "2 minutes, 0.00 million tokens, EUR 0.20 for each point gained; 10 minutes, 0.00 million tokens, EUR 1.00 in all"
    )
    refused = cost_of_run(costs, {"verdict": "refused", "difference": 0.06}, (6.0, None), "EUR")
    assert refused["says"] == "no point was gained: the gate refused; 10 minutes, 0.00 million tokens, EUR 1.00 in all"
    assert set(refused["per_point"].values()) == {None}
