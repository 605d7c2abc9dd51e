"""A candidate's evidence over nights: what its looks spend, and what becomes of it."""

import pandas as pd
import pytest
from scipy.stats import norm

from tracewheel.config import GateConfig
from tracewheel.evaluation.candidate import NIGHTS, cannot_wait, confirm, passes_screen, spent, waits
from tracewheel.evaluation.error_budget import (
    CONFIRMATION,
    NIGHT,
    Look,
    budget,
    cost_of_the_plan,
    level_of,
    names_candidates,
    promise_in_words,
)
from tracewheel.evaluation.gate import decide


def test_the_spending_is_the_published_one():
    """The first bound of five looks at one-sided 2.5% is 4.8769 (Lan and DeMets' program); the second's increment 3.357."""
    assert norm.isf(spent(0.025, 0.2)) == pytest.approx(4.8769, abs=1e-4)
    assert norm.isf(spent(0.025, 0.4) - spent(0.025, 0.2)) == pytest.approx(3.357, abs=1e-3)
    assert spent(0.025, 1.0) == pytest.approx(0.025) == spent(0.025, 1.5) and spent(0.025, 0.0) == 0.0 == spent(0.0, 1.0)


@pytest.fixture
def night(tmp_path):
    """Writes evaluations of a night: of `tasks` tasks the candidate solves `ours`, the champion `theirs`, the easiest first."""

    def write(number, ours, theirs, tasks=40):
        folders = []
        for name, solved in (("ours", ours), ("theirs", theirs)):
            folders.append(tmp_path / f"{name}-{number}")
            folders[-1].mkdir()
            ids = [f"task-{number}-{place}" for place in range(tasks)]
            greedy = [float(place < solved) for place in range(tasks)]
            pd.DataFrame({"task_id": ids, "family": "one", "greedy": greedy}).to_parquet(folders[-1] / "results.parquet")
        return tuple(folders)

    return write


def look(nights, before=0.0, level=0.01, planned=200):
    return confirm(GateConfig(), nights, level=level, before=before, planned=planned, baseline_name="champion")


def test_evidence_of_all_nights_is_judged_together_and_the_looks_spend_the_level(night):
    nights, used, states = [], 0.0, []
    for number in range(1, 4):
        nights.append(night(number, 26, 20))
        found = look(nights, used)
        assert found["spent"] == pytest.approx(spent(0.01, number * 40 / 200)) and found["tasks"] == 40 * number
        assert found["level"] == pytest.approx(found["spent"] - used) and found["difference"] == pytest.approx(0.15)
        assert (found["difference"] > found["boundary"]) == (found["state"] == "promoted")
        used = found["spent"]
        states.append(found["state"])
    assert states == ["waiting", "waiting", "promoted"]


def test_the_fifth_night_spends_what_is_left_and_is_the_last(night):
    nights = [night(number, 21, 20) for number in range(NIGHTS)]
    found = look(nights, before=0.002, planned=10_000)
    assert found["level"] == pytest.approx(0.008) and found["state"] == "dropped" and "not proven in 5 nights" in found["why"]


def test_one_that_is_not_better_is_dropped_at_once(night):
    assert look([night(1, 20, 20)])["state"] == "dropped" == look([night(2, 19, 20)])["state"]


def test_the_screen_asks_for_some_evidence_and_for_nothing_but_evidence():
    rows = pd.DataFrame({"task_id": range(200), "family": "one", "greedy": [float(place < 100) for place in range(200)]})

    def gate(solved, **more):
        better = rows.assign(greedy=[float(place < solved) for place in range(200)])
        return decide(GateConfig(), better, rows, look=Look(100, 0.001, NIGHT), **more).to_record()

    assert [passes_screen(gate(solved)) for solved in (100, 104, 106)] == [False, False, True]
    verdict = waits(gate(106), instead=False)
    assert (verdict["verdict"], verdict["cause"]) == ("refused", "waits") and "+3.0 points" in verdict["says"]
    assert cannot_wait(gate(106))["cause"] == "no_budget"


def test_a_promise_for_a_night_has_one_level_and_names_no_candidate():
    for promise, level in (("nightly", 0.025), ("expected_loss", 0.18)):
        config = GateConfig(promise=promise)
        assert level_of(config, Look(300, 1.0)) == pytest.approx(level) and not names_candidates(config)
    assert "2.5% of nights" in promise_in_words(GateConfig(promise="nightly"))
    assert names_candidates(GateConfig()) and not names_candidates(GateConfig(gates_per_year=1))


def test_the_expected_loss_of_a_promotion_at_the_level_is_below_a_tenth_of_its_gain():
    z = norm.isf(0.18)
    assert (norm.pdf(z) - z * norm.sf(z)) / (norm.pdf(z) + z * norm.cdf(z)) < 0.1


def test_a_year_of_looks_and_confirmations_shares_the_budget():
    config = GateConfig()
    nights = sum(level_of(config, Look(number, 0.0, NIGHT)) for number in range(1, 366))
    confirmed = sum(level_of(config, Look(number, 0.0, CONFIRMATION)) for number in range(1, 38))
    assert nights + confirmed == pytest.approx(budget(config), rel=1e-3)


def test_a_plan_that_costs_the_promotion_is_named():
    config = GateConfig()
    even = level_of(config, Look(200, 1e-9, NIGHT))
    assert "with 52 the same evidence" in cost_of_the_plan(config, Look(200, 1e-9, NIGHT), 2 * even)
    assert (
        cost_of_the_plan(config, Look(200, 1e-9, NIGHT), 0.2)
        == ""
        == cost_of_the_plan(GateConfig(promise="nightly"), Look(), 0.02)
    )
