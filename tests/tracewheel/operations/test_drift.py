"""The tests of drift: against SciPy, with users and weekends, and on real logs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tracewheel.config import IngestConfig
from tracewheel.core.log_formats import LOG_FORMATS
from tracewheel.operations.drift import ALL, find_drift
from tracewheel.traces.ingest import ingest
from tracewheel.traces.ingested_folder import TRACES_FOLDER

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


def asked(stream, days, mix, *, users=0, first="2026-01-05", daily=40):
    """`days` days of attempts by families a, b and c; with `users`, each asks for one of them only."""
    day = np.repeat(np.arange(days), daily)
    user = stream.integers(max(users, 1), size=len(day))
    shares = np.array([mix(number) for number in day])
    likes = np.random.default_rng(0).choice(3, max(users, 1), p=mix(0))
    family = likes[user] if users else (stream.random(len(day))[:, None] > shares.cumsum(1)).sum(1).clip(max=2)
    names = [f"{first}-{number}" for number in range(len(day))]
    return pd.DataFrame(
        {
            "trace_id": names,
            "task_id": names,
            "family": np.array(["a", "b", "c"])[family],
            "success": 1.0,
            "created": np.datetime_as_string(np.datetime64(first) + day),
            "user": [f"u{number}" for number in user] if users else None,
            "session": None,
        }
    )


def even(day):
    return (0.5, 0.3, 0.2)


def moved(day):
    return (0.5, 0.1, 0.4)


def test_independent_attempts_have_the_binomial_tail():
    """One stratum, much history: SciPy's binomial mid-p, of 80 successes of 100 where 9,000 of 10,000 were before."""
    before = attempts(rated("a", 9000, 10_000, "x"))
    (fall,) = find_drift(before, attempts(rated("a", 80, 100, "y")), 0.1).falls
    wanted = stats.binom.cdf(79, 100, 0.9) + stats.binom.pmf(80, 100, 0.9) / 2
    assert fall.p_value == pytest.approx(wanted, rel=0.1)
    assert (fall.before, fall.after, fall.attempts, fall.found) == (0.9, 0.8, 100, True)


def test_a_fall_is_found_in_its_family_and_a_rise_is_no_drift():
    before = attempts(rated("a", 80, 100, "x") + rated("b", 80, 100, "x"))
    fell = find_drift(before, attempts(rated("a", 24, 30, "y") + rated("b", 8, 30, "y")), 0.001)
    assert {fall.family for fall in fell.falls if fall.found} == {ALL, "b"}
    assert "success of b from 80% to 27% in 30 attempts" in fell.says() and not any(share.found for share in fell.shares)
    rose = find_drift(before, attempts(rated("a", 30, 30, "y") + rated("b", 30, 30, "y")), 0.1)
    assert not rose.found and rose.says().startswith("no drift (success p = 1")


def test_unscored_attempts_are_not_failures_and_retries_are_one_task():
    before = attempts(rated("a", 45, 50, "x"))
    lost = attempts([(f"y{n}", "a", float("nan")) for n in range(40)] + rated("a", 9, 10, "z"))
    assert not find_drift(before, lost, 0.5).found
    retried = attempts([("y", "a", 0.0)] * 40 + rated("a", 9, 10, "z"))
    drift = find_drift(before, retried, 0.2)
    assert drift.falls[0].attempts == 11 and not drift.found


def test_a_harder_task_is_compared_with_itself():
    """The later day holds the hard tasks only; each is solved as often as before."""
    easy = [(f"e{n}", "a", 1.0) for n in range(40)]
    hard = [(f"h{n}", "a", float(m == 0)) for n in range(20) for m in range(4)]
    assert not find_drift(attempts(easy + hard), attempts(hard), 0.5).found
    failed = find_drift(attempts(easy + hard), attempts([(task, family, 0.0) for task, family, _ in hard]), 0.01)
    assert failed.falls[0].found


def test_a_mix_that_moves_is_found_and_a_user_who_comes_more_often_is_no_change():
    stream = np.random.default_rng(1)
    before, week = asked(stream, 56, even), "2026-03-02"
    found = find_drift(before, asked(stream, 7, moved, first=week), 0.0005)
    assert {share.family for share in found.shares if share.found} == {"b", "c"}
    assert "the task mix changed: the share of b from 30% to" in found.says()
    assert not find_drift(before, asked(stream, 7, even, first=week), 0.05).found
    known = asked(stream, 56, even, users=12)
    after = asked(stream, 7, even, users=3, first=week)
    assert find_drift(known.assign(user=None), after.assign(user=None), 0.0005).found, "as if each attempt were of its own"
    assert not find_drift(known, after, 0.05).found


def test_a_weekend_is_compared_with_weekends():
    def weekly(day):
        return moved(day) if day % 7 >= 5 else even(day)

    stream = np.random.default_rng(2)
    before = asked(stream, 56, weekly)
    weekend = asked(stream, 2, lambda day: moved(day), first="2026-03-07", daily=150)
    assert not find_drift(before, weekend, 0.05).found
    assert find_drift(before, weekend.assign(created="2026-03-04"), 0.0005).found
    assert not find_drift(before[before["created"] < "2026-01-10"], weekend, 0.05).shares, "no weekend was known"


def test_the_newest_week_is_compared_whatever_came_before_it():
    stream = np.random.default_rng(3)
    before, since = (
        asked(stream, 56, even),
        asked(stream, 21, lambda day: moved(day) if day >= 14 else even(day), first="2026-03-02"),
    )
    found = find_drift(before, since, 0.0005)
    assert found.found and found.shares[0].attempts == 7 * 40


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
    rows = pd.read_parquet(tmp_path / "all" / TRACES_FOLDER)
    found = rows.assign(trace_id=rows["id"], task_id=rows["task"], family="airline", success=rows["outcome"])
    trials = json.loads(file.read_text())
    assert len(found) == len(trials) and found["success"].mean() == pytest.approx(np.mean([one["reward"] for one in trials]))
    number = found.groupby("task_id").cumcount()
    before, after = found[number < 2], found[number >= 2]
    drift = find_drift(before, after, 0.1)
    assert not drift.found and drift.falls[0].attempts == len(after) == 50
    assert drift.falls[0].after == after["success"].mean()
    assert find_drift(before, after.assign(success=0.0), 0.001).found
