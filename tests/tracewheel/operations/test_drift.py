"""The tests of drift: against SciPy and all permutations, and on real logs."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tracewheel.config import IngestConfig
from tracewheel.core.log_formats import LOG_FORMATS
from tracewheel.operations.drift import ALL, Stratum, fall_p_value, find_drift, logged_attempts, mix_p_value
from tracewheel.traces.ingest import ingest

AIRLINE = Path(__file__).parents[4] / "shared/traces/tau_bench"


def attempts(rows, day="2026-01-01"):
    """(task, family, success) rows as logged attempts."""
    return pd.DataFrame(
        [
            {"trace_id": str(number), "task_id": task, "family": family, "success": success, "created": day}
            for number, (task, family, success) in enumerate(rows)
        ]
    )


def rated(family, solved, tried, prefix):
    """Single attempts at `tried` tasks of a family, of which the first `solved` succeed."""
    return [(f"{prefix}{family}{number}", family, float(number < solved)) for number in range(tried)]


def test_a_single_stratum_is_fishers_exact_test():
    """SciPy 1.17's `fisher_exact`, one-sided, on random tables."""
    stream = np.random.default_rng(3)
    for _ in range(60):
        tried, before = (int(n) for n in stream.integers(1, 60, 2))
        solved, earlier = int(stream.integers(0, tried + 1)), int(stream.integers(0, before + 1))
        table = [[solved, tried - solved], [earlier, before - earlier]]
        wanted = stats.fisher_exact(table, alternative="less").pvalue
        assert fall_p_value([Stratum(solved, tried, earlier, before)]) == pytest.approx(wanted, rel=1e-9)


def test_several_strata_are_all_permutations_within_them():
    """Counted one by one: which of a stratum's outcomes are the later ones, in every combination of strata."""
    outcomes = [([1, 0, 0], [1, 1, 1]), ([0, 1], [1, 1, 0]), ([0], [1])]

    def sums(later, before):
        return [sum(chosen) for chosen in itertools.combinations(later + before, len(later))]

    observed = sum(sum(later) for later, _ in outcomes)
    totals = [sum(parts) for parts in itertools.product(*(sums(*pair) for pair in outcomes))]
    wanted = sum(total <= observed for total in totals) / len(totals)
    strata = [Stratum(sum(later), len(later), sum(before), len(before)) for later, before in outcomes]
    assert fall_p_value(strata) == pytest.approx(wanted, rel=1e-12)


def test_the_mix_is_tested_by_all_tables_with_its_margins():
    """Two families: the two-sided hypergeometric probability of tables as far from the expected one."""
    before, after = {"a": 30, "b": 10}, {"a": 6, "b": 9}
    margins = stats.hypergeom(55, 36, 15)
    distance = abs(np.arange(16) - 15 * 36 / 55)
    wanted = margins.pmf(np.arange(16))[distance >= abs(6 - 15 * 36 / 55) - 1e-9].sum()
    found = [mix_p_value(before, after, level=0.001, seed=seed) for seed in range(8)]
    assert np.mean(found) == pytest.approx(wanted, rel=0.1)
    assert mix_p_value({"a": 3}, {"a": 5}) == mix_p_value({"a": 3}, {}) == 1.0


def test_a_fall_is_found_in_its_family_and_a_rise_is_no_drift():
    before = attempts(rated("a", 80, 100, "x") + rated("b", 80, 100, "x"))
    fell = find_drift(before, attempts(rated("a", 24, 30, "y") + rated("b", 8, 30, "y")), 0.001)
    assert fell.fallen == ("b", ALL) or set(fell.fallen) == {ALL, "b"}
    assert "success of b fell from 80% to 27% in 30 outcomes" in fell.says() and not fell.mix_changed
    rose = find_drift(before, attempts(rated("a", 30, 30, "y") + rated("b", 30, 30, "y")), 0.1)
    assert not rose.found and rose.says().startswith("no drift (success p = 1")


def test_unscored_attempts_are_not_failures_and_retries_are_one_task():
    before = attempts(rated("a", 45, 50, "x"))
    lost = attempts([(f"y{n}", "a", float("nan")) for n in range(40)] + rated("a", 9, 10, "z"))
    assert not find_drift(before, lost, 0.5).fallen
    retried = attempts([("y", "a", 0.0)] * 40 + rated("a", 9, 10, "z"))
    drift = find_drift(before, retried, 0.5)
    assert drift.falls[0].outcomes == 11 and not drift.fallen
    kinds = attempts(rated("a", 25, 25, "x") + rated("b", 25, 25, "x"))
    many = attempts([("q", "b", 1.0)] * 40 + rated("a", 5, 5, "y") + rated("b", 5, 5, "y"))
    assert not find_drift(kinds, many, 0.5).mix_changed and find_drift(kinds, many, 0.5).mix_after == (("a", 5), ("b", 6))


def test_a_harder_task_is_compared_with_itself():
    """The later day holds the hard tasks only; each is solved as often as before."""
    easy = [(f"e{n}", "a", 1.0) for n in range(40)]
    hard = [(f"h{n}", "a", float(m == 0)) for n in range(20) for m in range(4)]
    assert not find_drift(attempts(easy + hard), attempts(hard), 0.5).fallen
    assert find_drift(attempts(easy + hard), attempts([(task, family, 0.0) for task, family, _ in hard]), 0.01).fallen


@pytest.mark.skipif(
    not AIRLINE.is_dir() or "tau_bench" not in LOG_FORMATS,
    reason="the real airline logs are not beside this checkout, or tracewheel-logs is not installed",
)
def test_real_airline_trials_of_one_agent_do_not_drift_and_half_with_flipped_rewards_does(tmp_path):
    """Trials 0 and 1 of each task beside trials 2 and 3: one agent, the same tasks, no drift. Then its successes fail."""
    (file,) = AIRLINE.glob("*.json")
    config = IngestConfig(paths=(str(file),))
    (tmp_path / "all").mkdir()
    ingest(config, tmp_path / "all")
    found = logged_attempts(tmp_path / "all")
    trials = json.loads(file.read_text())
    assert len(found) == len(trials) and found["success"].mean() == pytest.approx(np.mean([one["reward"] for one in trials]))
    number = found.groupby("task_id").cumcount()
    before, after = found[number < 2], found[number >= 2]
    drift = find_drift(before, after, 0.1)
    assert not drift.found and drift.falls[0].outcomes == len(after) == 50
    assert drift.falls[0].after == after["success"].mean()
    assert find_drift(before, after.assign(success=0.0), 0.001).fallen
