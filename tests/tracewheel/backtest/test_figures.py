"""Areas, comparisons and false promotions, against numbers worked out by hand."""

import math
from datetime import UTC, datetime
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from tracewheel.backtest.figures import area_of, between, compare, daily
from tracewheel.backtest.promotions import FALSE, OPEN, TRUE, UNJUDGED, false_promotions, judge_promotions
from tracewheel.backtest.serving import FIRST, Served, serve, with_scores

Z = NormalDist().inv_cdf(0.975)


def moment(day, hour=0):
    return datetime(2026, 10, day, hour, tzinfo=UTC)


def rows_of(days):
    """Rows of (day, task, score, first)."""
    return pd.DataFrame(days, columns=["day", "task_id", "score", "first"]).assign(success=float("nan"), policy="p")


def asked_of(tasks):
    """An exam of (day, task)."""
    at = [round(moment(day, 12).timestamp() * 1_000_000) for day, _ in tasks]
    names = [name for _, name in tasks]
    return pd.DataFrame(
        {
            "day": [f"2026-10-{day:02}" for day, _ in tasks],
            "at": at,
            "task_id": names,
            "fingerprint": [f"print {name}" for name in names],
            "keys": [[f"key {name}"] for name in names],
            "success": float("nan"),
        }
    )


def test_the_area_is_the_sum_of_daily_differences_with_the_spread_of_tasks():
    """Day 1: differences 1, 0; day 2: 1, 1, -1. The means are 50 and 33.3 points."""
    rows = rows_of([("1", "a", 1, 0), ("1", "b", 0, 0), ("2", "c", 1, 0), ("2", "d", 1, 0), ("2", "e", 0, 1)])
    found = area_of(rows)
    assert (found.days, found.rows) == (2, 5)
    assert found.points == pytest.approx(50 + 100 / 3) and found.a_day == pytest.approx(found.points / 2)
    of_first = 2 * 2 * 25.0**2  # n / (n - 1) = 2; two residuals of 50 / 2
    of_second = 1.5 * (2 * (200 / 9) ** 2 + (400 / 9) ** 2)
    assert found.high - found.points == pytest.approx(Z * math.sqrt(of_first + of_second))


def test_a_task_of_two_days_is_one_draw_and_unscored_rows_do_not_count():
    twice = rows_of([(day, task, score, 0) for day in "12" for task, score in (("a", 1), ("b", 0))])
    apart = twice.assign(task_id=["a", "b", "c", "d"])
    assert area_of(twice).points == area_of(apart).points == 100
    assert area_of(twice).high - 100 == pytest.approx(math.sqrt(2) * (area_of(apart).high - 100))
    unscored = pd.concat([twice, rows_of([("1", "z", float("nan"), 1), ("3", "y", 1, float("nan"))])])
    assert area_of(unscored) == area_of(twice)
    empty = area_of(twice[:0])
    assert (empty.points, empty.days, empty.a_day) == (0.0, 0, None)


def test_the_interval_covers_in_95_of_100_simulated_windows():
    """Ten days of twelve tasks, a tenth of which come back on a later day; the truth is the mean over very many windows."""
    stream, inside, points = np.random.default_rng(5), [], []
    for _ in range(400):
        tasks = []
        for day in range(10):
            for _ in range(12):
                if tasks and stream.random() < 0.1:
                    _, name, new, old = tasks[stream.integers(len(tasks))]
                else:
                    name, new, old = f"t{len(tasks)}", float(stream.random() < 0.6), float(stream.random() < 0.4)
                tasks.append((day, name, new, old))
        found = area_of(rows_of(tasks).drop_duplicates(["day", "task_id"]))
        points.append(found.points)
        inside.append(found.low <= 200 <= found.high)
    assert np.mean(points) == pytest.approx(200, abs=5)
    assert 0.92 < np.mean(inside) < 0.98


def test_what_served_a_task_is_what_the_last_tick_before_it_left():
    asked = asked_of([(1, "a"), (2, "b"), (4, "c"), (4, "d")])
    served = [
        Served(moment(1), FIRST),
        Served(moment(3), "new", frozenset({"print d"}), frozenset({"key c"})),
    ]
    rows = with_scores(serve(asked, served), {FIRST: dict.fromkeys("abcd", 0.0), "new": {"c": 1.0, "d": 1.0}})
    assert list(rows["policy"]) == [FIRST, FIRST, "new", "new"]
    assert list(rows["used"]) == [False, False, False, True] and list(rows["related"]) == [False, False, True, False]
    assert list(rows["score"]) == [0.0, 0.0, 1.0, 1.0]
    assert [one["success"] for one in daily(rows)] == [0.0, 0.0, 1.0]


def test_the_best_branch_is_compared_on_common_tasks_and_may_not_be_clear():
    good = rows_of([(day, f"{day}{n}", 1, 0) for day in "12345678" for n in range(9)])
    worse = good.assign(score=[float(place % 3 > 0) for place in range(len(good))])
    equal = good.copy()
    found = compare({"worse": worse, "good": good})
    assert found["best"] == "good" and found["clear"] and found["differences"]["worse"]["points"] == pytest.approx(800 / 3)
    tie = compare({"good": good, "equal": equal})
    assert tie["best"] == "good" and not tie["clear"] and tie["differences"]["equal"]["points"] == 0
    assert between(good, worse[worse["day"] == "1"]).days == 1
    three = compare({"good": good, "worse": worse, "equal": equal})["differences"]["worse"]
    assert three["low"] < found["differences"]["worse"]["low"], "two comparisons: wider intervals"


def test_promotions_are_judged_on_later_tasks_that_nothing_was_learnt_from():
    asked = asked_of([(day, f"{day}-{n}") for day in (1, 2, 3) for n in range(20)])
    names = list(asked["task_id"])
    scores = {
        FIRST: dict.fromkeys(names, 0.0),
        "better": {name: float(place % 2) for place, name in enumerate(names)},
        "worse": {name: float(place % 8 == 1) for place, name in enumerate(names)},
    }
    served = [Served(moment(1), FIRST), Served(moment(2), "better"), Served(moment(2, 18), "worse")]
    first, second = judge_promotions(asked, served, scores)
    assert (first.tasks, first.difference, first.verdict) == (40, 50.0, TRUE)
    error = math.sqrt(40 * 50.0**2 / 39 / 40)
    assert first.low == pytest.approx(50 - Z * error) and first.false_with == pytest.approx(NormalDist().cdf(-50 / error))
    assert (second.tasks, second.difference, second.replaced) == (20, -35.0, "better") and second.verdict == FALSE
    found = false_promotions([first, second])
    assert found["expected"] == pytest.approx(first.false_with + second.false_with) and found["judged"] == 2
    learnt = Served(moment(2, 18), "worse", frozenset({"print 3-0"}), frozenset({"key 3-1"}))
    (few,) = judge_promotions(asked, [Served(moment(1), "better"), learnt], scores)
    assert few.tasks == 18 and few.verdict == UNJUDGED and few.false_with is None
    same = judge_promotions(asked, [Served(moment(1), FIRST), Served(moment(2), "twin")], scores | {"twin": scores[FIRST]})
    assert same[0].false_with == 1.0 and same[0].verdict == FALSE, "no better is false"
    noise = {name: float(place % 3 == 0) for place, name in enumerate(names)}
    half = judge_promotions(asked, [Served(moment(1), "better"), Served(moment(2), "noise")], scores | {"noise": noise})
    assert half[0].verdict == OPEN
