"""A backtest: its days and branches, its figures against numbers worked out by hand, and the whole command."""

import json
import math
import shutil
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import NormalDist

import pandas as pd
import pytest
import yaml

from tracewheel import ConfigError
from tracewheel_lab.backtest.exam import BASE, figures_of
from tracewheel_lab.backtest.plan import Branch, Window, branches_of
from tracewheel_lab.backtest.replay import Tick, end_of, verdict_words
from tracewheel_lab.commands.backtest import HEAD, rows_of

Z = NormalDist().inv_cdf(0.975)


def moment(day, hour=0):
    return datetime(2026, 10, day, hour, tzinfo=UTC)


def tick(day, champion=BASE, end="promoted", run=""):
    return Tick(moment(day).isoformat(), end, "", run, None, champion)


def asked_of(*days):
    """An exam of (day, task), each asked for at noon."""
    rows = [(f"2026-10-{day:02}", pd.Timestamp(moment(day, 12)), task, f"print {task}") for day, task in days]
    return pd.DataFrame(rows, columns=["day", "moment", "task_id", "fingerprint"])


def test_days_stay_at_midnight_when_the_clocks_change():
    window = Window.of("2026-10-24", "2026-10-26", "Europe/Berlin")
    assert [at.isoformat()[:16] for at in window.ticks("1d")] == ["2026-10-23T22:00", "2026-10-24T22:00", "2026-10-25T23:00"]
    assert len(window.ticks("12h")) == 7 and window.first == date(2026, 10, 24)


def test_branches_are_cadences_with_settings():
    branches = branches_of("1d,2d", ["gate.confidence=0.8,0.95"])
    assert [branch.name for branch in branches][:2] == ["1d gate.confidence=0.8", "2d gate.confidence=0.8"]
    assert len(branches) == 4 and branches_of("1d", []) == [Branch("1d")]


@pytest.mark.parametrize(
    ("says", "work"),
    [
        ("ends before", lambda: Window.of("2026-10-02", "2026-10-01", "UTC")),
        ("write dates as", lambda: Window.of("tomorrow", "2026-10-01", "UTC")),
        ("no such time zone", lambda: Window.of("2026-10-01", "2026-10-02", "Europe/Atlantis")),
        ("longer than the window", lambda: Window.of("2026-10-01", "2026-10-02", "UTC").ticks("1w")),
        ("expected hours, days or weeks", lambda: Window.of("2026-10-01", "2026-10-02", "UTC").ticks("0d")),
        ("expected a setting with values", lambda: branches_of("1d", ["gate.confidence"])),
        ("names a branch twice", lambda: branches_of("1d,1d", [])),
    ],
)
def test_what_is_wrong_is_said(says, work):
    with pytest.raises(ConfigError, match=says):
        work()


def test_the_area_is_the_sum_of_daily_differences_with_the_spread_of_tasks():
    """Day 1: gains 1, 0; day 2: 1, 1, -1. The means are 50 and 33.3 points."""
    asked = asked_of((1, "a"), (1, "b"), (2, "c"), (2, "d"), (2, "e"))
    scores = {BASE: {"a": 0, "b": 0, "c": 0, "d": 0, "e": 1}, "run": {"a": 1, "b": 0, "c": 1, "d": 1, "e": 0}}
    points = figures_of(asked, [tick(1, "run")], scores, {})["points"]
    assert points["days"] == 2 and points["gained"] == pytest.approx(50 + 100 / 3)
    of_first = 2 * 2 * 25.0**2  # n / (n - 1) = 2; two residuals of 50 / 2
    of_second = 1.5 * (2 * (200 / 9) ** 2 + (400 / 9) ** 2)
    assert points["high"] - points["gained"] == pytest.approx(Z * math.sqrt(of_first + of_second))


def test_a_task_of_two_days_is_one_draw():
    scores = {BASE: dict.fromkeys("abcd", 0), "run": {"a": 1, "b": 0, "c": 1, "d": 0}}
    twice, apart = (
        figures_of(asked_of(*pairs), [tick(1, "run")], scores, {})["points"]
        for pairs in ([(1, "a"), (1, "b"), (2, "a"), (2, "b")], [(1, "a"), (1, "b"), (2, "c"), (2, "d")])
    )
    assert twice["gained"] == apart["gained"] == 100
    assert twice["high"] - 100 == pytest.approx(math.sqrt(2) * (apart["high"] - 100))


def test_each_day_counts_what_served_it_and_no_task_that_was_used_before():
    """The base serves day 1, the first champion days 2 and 3. Task b was trained on by the run of day 2."""
    asked = asked_of((1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "c"), (3, "unscored"))
    scores = {BASE: {"a": 0, "b": 0, "c": 1}, "one": {"a": 1, "b": 1, "c": 1}}
    found = figures_of(asked, [tick(1, end="skipped"), tick(2, "one", run="one")], scores, {"one": {"print b"}})
    assert [(day["day"][-1], day["base"], day["champion"], day["tasks"]) for day in found["days"]] == [
        ("1", 0, 0, 2),
        ("2", 0, 1, 1),
        ("3", 1, 1, 1),
    ]
    assert found["ends"] == {"promoted": 1, "waits": 0, "refused": 0, "skipped": 1, "failed": 0} and found["used_before"] == 1


@pytest.mark.parametrize(
    ("better", "worse", "verdict"), [(30, 0, "better"), (0, 30, "false"), (11, 10, "open"), (3, 0, "too few tasks")]
)
def test_a_promotion_is_judged_by_later_unused_tasks(better, worse, verdict):
    names = [f"up {n}" for n in range(better)] + [f"down {n}" for n in range(worse)]
    asked = asked_of((1, "before"), (3, "used"), *((3, name) for name in names))
    scores = {
        BASE: {"before": 1, "used": 1} | {name: float(name.startswith("down")) for name in names},
        "one": {"before": 0, "used": 0} | {name: float(name.startswith("up")) for name in names},
    }
    (judged,) = figures_of(asked, [tick(2, "one", run="one")], scores, {"one": {"print used"}})["promotions"]
    assert judged["verdict"] == verdict and judged["tasks"] == better + worse


def test_false_promotions_are_counted_of_those_that_are_judged():
    """Run `one` is worse than the base and `two` better than `one`, on 25 later tasks; no task follows the third."""
    asked = asked_of(*((day, f"{day} {n}") for day in (1, 3) for n in range(25)))
    nothing, everything = (dict.fromkeys(asked["task_id"], float(value)) for value in (0, 1))
    scores = {BASE: everything, "one": nothing, "two": everything, "three": everything}
    ticks = [tick(1, end="waits"), tick(2, "one"), tick(3, "two"), tick(4, "three"), tick(5, "three", end="refused")]
    found = figures_of(asked, ticks, scores, {})
    (row,) = rows_of({"branches": {"1d": found}})
    assert dict(zip(HEAD, row, strict=True)) == {
        "branch": "1d",
        "point-days": "+0",
        "95% interval": "+0 to +0",
        "promoted": "3",
        "false promotions": "1 of 2",
        "waits": "1",
        "refused": "1",
        "skipped": "0",
        "failed": "0",
        "promotions on later tasks": "false, better, too few tasks",
    }


def test_a_night_says_its_verdict_and_what_came_of_the_candidate():
    refused = {"verdict": "refused", "cause": "nothing_learnt", "says": "RL improved on nothing", "level": None}
    waiting = {"run": "abc", "why": "not proven yet: +3.0 points on 200 fresh tasks against the champion"}
    assert verdict_words({"gate": refused, "candidate": waiting}) == [
        "RL improved on nothing. Nothing to test, no budget spent.",
        "The candidate of run abc: not proven yet: +3.0 points on 200 fresh tasks against the champion.",
    ]
    promoted = {"verdict": "promoted", "difference": 0.05, "expected_gain": 0.04, "pairs": 400, "baseline": "champion"}
    said = verdict_words({"gate": promoted, "candidate": waiting | {"why": "proven"}})
    assert said[0].startswith("Promoted: expect +4.0 points over the champion") and not any("abc" in text for text in said)
    assert [end_of(promoted), end_of(refused), end_of(refused | {"cause": "waits"})] == ["promoted", "refused", "waits"]


@pytest.mark.slow
def test_two_cadences_of_real_runs(profile, tmp_path, command):
    """The whole command on three days of the shipped log, then once more, which replays nothing again."""
    assert shutil.which("tracewheel", path=str(Path(sys.executable).parent)), "install Tracewheel to run this test"
    values = yaml.safe_load(profile.read_text())
    values["curation"] = {"train_tasks": 40, "validation_tasks": 4, "held_out_tasks": 8, "harder_tasks": 4, "min_attempts": 1}
    values |= {"comparison": {"warm_starts": "one", "policies": "gate", "aa": False}, "work_dir": str(tmp_path / "run")}
    values["training"] = values.get("training", {}) | {"iterations": 1}
    values["evaluation"] = values.get("evaluation", {}) | {"samples": 1, "pass_at": [1]}
    file = tmp_path / "profile.yaml"
    file.write_text(yaml.safe_dump(values))
    words = ["backtest", file, "--from", "2026-10-03", "--to", "2026-10-04", "--cadence", "1d,2d", "--out", tmp_path / "out"]
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert "most points over the base" in done.stdout
    result = json.loads((tmp_path / "out" / "backtest.json").read_text())
    daily, second = (result["branches"][name] for name in ("1d", "2d"))
    assert len(daily["ticks"]) == 2 and len(second["ticks"]) == 1 and daily["asked"] == second["asked"] > 0
    assert daily["ticks"][0]["end"] == second["ticks"][0]["end"] in ("promoted", "waits", "refused")
    assert daily["ticks"][0]["why"].startswith(("Promoted", "Not promoted", "RL improved on no"))
    assert "## 2d" in (tmp_path / "out" / "backtest.md").read_text()
    before = (tmp_path / "out" / "backtest.json").read_bytes()
    again = command(*words, "--json")
    assert again.returncode == 0 and " new traces: " not in again.stderr
    assert (tmp_path / "out" / "backtest.json").read_bytes() == before
    other = command(*words[:3], "2026-10-02", *words[4:])
    assert other.returncode == 2 and "another window" in other.stderr
