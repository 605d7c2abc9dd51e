"""The result of two branches from their ticks, and its text, page and plot."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from xml.etree import ElementTree

import pandas as pd
import pytest

from tracewheel.backtest.plan import Window
from tracewheel.backtest.result import UNUSED, BranchRecord, result_of
from tracewheel.backtest.serving import FIRST
from tracewheel.dashboard.backtest import headline, sentences, shown, write_backtest
from tracewheel.dashboard.backtest_chart import draw

DAYS = (2, 3, 4, 5)
TASKS = [(day, f"{day}-{number}") for day in DAYS for number in range(30)]


def tick(day, end, champion=None, held=()):
    at = f"2026-10-{day:02}T00:00:00+00:00"
    return SimpleNamespace(at=at, end=end, run=None, figures={"why": "a <b>"}, champion=champion, held=list(held), new=9)


@pytest.fixture(scope="module")
def result():
    asked = pd.DataFrame(
        {
            "day": [f"2026-10-{day:02}" for day, _ in TASKS],
            "at": [round(datetime(2026, 10, day, 9, tzinfo=UTC).timestamp() * 1_000_000) for day, _ in TASKS],
            "task_id": [name for _, name in TASKS],
            "fingerprint": [name for _, name in TASKS],
            "keys": [[name] for _, name in TASKS],
            "success": [float(place % 2) for place in range(len(TASKS))],
        }
    )
    scores = {FIRST: {name: float(place % 5 == 0) for place, (_, name) in enumerate(TASKS)}}
    scores["good"] = {name: float(place % 5 < 4) for place, (_, name) in enumerate(TASKS)}
    batch = {"id": "b", "records": 45, "reasons": ["rewards"]}
    daily = [tick(2, "refused"), tick(3, "promoted", "good"), tick(4, "skipped", "good", [batch]), tick(5, "failed", "good")]
    second = [tick(2, "no logs"), tick(4, "refused")]
    used = {"1d": [UNUSED, (frozenset({"3-0", "4-0"}), frozenset({"4-0", "4-1"})), UNUSED, UNUSED], "2d": [UNUSED] * 2}
    branches = {"1d": BranchRecord("1d", {}, daily), "2d": BranchRecord("2d", {}, second)}
    exam = {"tasks": 120, "asked": 120, "days": 4, "blocks": ["block-001"], "left_out": {"another environment": 3}}
    return result_of(Window.of("2026-10-02", "2026-10-05", "UTC"), asked, exam, branches, used, scores)


def test_points_runs_held_days_and_promotions(result):
    daily, second = result["branches"]["1d"], result["branches"]["2d"]
    assert second["points"]["points"] == 0 and second["false_promotions"]["promotions"] == 0
    assert daily["asked"] == {"all": 120, "used_before": 2, "related_to_used": 1}
    assert daily["runs"]["promoted"] == 1 and daily["runs"]["failed"] == 1 and second["runs"]["no logs"] == 1
    assert daily["held"] == {"ticks": ["2026-10-04T00:00:00+00:00"], "records": 45, "days": 1.0}
    assert round(daily["days"][0]["success"], 2) == 0.2, "the first policy serves the first day"
    assert daily["points"]["points"] == pytest.approx(180, abs=5) and daily["points"]["days"] == 4
    assert daily["points_unrelated"]["rows"] == daily["points"]["rows"] - 1
    assert daily["over_first_champion"]["points"] == 0
    (promotion,) = daily["promotions"]
    assert promotion["verdict"] == "better" and promotion["replaced"] == FIRST and promotion["tasks"] == 90 - 3
    assert result["comparison"]["all"]["best"] == "1d" and result["comparison"]["all"]["clear"]


def test_text_page_and_plot(result, tmp_path):
    total = {"seconds": 3600.0, "tokens": 12000, "money": 2.0, "currency": "EUR"}
    spent = {"seconds": {"rollout": 3600.0}, "tokens": {"rollout": 12000}, "total": total}
    costs = {"branches": {"1d": spent, "2d": spent}, "exam": spent, "backtest": spent, "shared": 4}
    files = write_backtest(tmp_path, result, costs)
    text = shown(result, costs, files)
    assert text.startswith("best: 1d, +") and "better than each other branch" in text
    assert "1d: 1 runs failed: a <b>" in text and "left out: 3 another environment" in text and "12,000" in text
    assert json.loads((tmp_path / "backtest.json").read_text()) == result
    plot = ElementTree.fromstring((tmp_path / "backtest.svg").read_text())
    assert plot.attrib["aria-label"].startswith("Backtest from 2026-10-02 to 2026-10-05: 1d 1")
    lines = [line.attrib["points"].split() for line in plot.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(points) for points in lines] == [5, 5]
    page = (tmp_path / "backtest.html").read_text()
    assert "a &lt;b&gt;" in page and "<b>" not in page.split("<ul>")[1].split("</ul>")[0] and "<svg" in page
    again = write_backtest(tmp_path, result, costs)
    assert again == files
    alone = {**result, "comparison": {"all": {"best": "1d", "differences": {}, "clear": False}}}
    assert headline(alone).startswith("1d: +")


def test_a_tie_is_called_a_tie(result):
    """Two gates with the same verdicts serve the same policies; more points by a task that only one had used is no lead."""
    area = {"points": 0.0, "low": 0.0, "high": 0.0, "days": 4, "rows": 100, "a_day": 0.0}
    behind = area | {"points": 9.0, "low": -2.0, "high": 20.0}

    def compared(**differences):
        compared = {"best": "1d", "differences": differences, "clear": False}
        branches = dict.fromkeys(("1d", *differences), result["branches"]["1d"])
        return {**result, "branches": branches, "comparison": {"all": compared, "unrelated": compared}}

    assert headline(compared(second=area, third=area)).startswith("a tie of 1d, second and third, equal on all tasks that")
    some = headline(compared(second=area, third=behind))
    assert some.startswith("most points: 1d (a tie with second), +") and some.endswith("; not certainly more than third")
    certain = headline(compared(second=area, third=behind | {"low": 1.0}))
    assert certain.startswith("best: 1d (a tie with second), +") and certain.endswith(
        "than each other branch with 95% confidence"
    )
    assert "not certainly more than second" in headline(compared(second=area | {"rows": 0}))

    spent = {"total": {"seconds": 1.0}}
    said = sentences(compared(second=area, third=behind, fourth=area | {"rows": 0}), {"backtest": spent, "shared": 0})
    assert said[:3] == [
        "1d minus second: 0, equal on all 100 tasks of days that count in both",
        "1d minus third: +9.0 point-days (-2.0 to +20, all together 95%)",
        "1d minus fourth: unknown, no task counts in both",
    ]
    assert "1d: equal to its own first champion on all tasks since" in said


def test_the_plot_shows_both_lines_of_gates_that_agree_and_a_promotion_beside_a_held_batch(result):
    daily = result["branches"]["1d"]
    both = {**daily, "ticks": [{**daily["ticks"][1], "held": [{"id": "b"}]}]}
    gates = {f"gate {value}": {**both, "gate": {"confidence": value}} for value in (0.8, 0.9)}
    plot = ElementTree.fromstring(draw({**result, "branches": gates}))
    lines = list(plot.iter("{http://www.w3.org/2000/svg}polyline"))
    assert [line.attrib["stroke-width"] for line in lines] == ["6", "2"]
    assert lines[0].attrib["points"] == lines[1].attrib["points"] and lines[1].attrib["stroke-opacity"] == "1.00"
    marks = [
        mark for mark in plot.iter("{http://www.w3.org/2000/svg}g") if "promoted, a batch is held" in "".join(mark.itertext())
    ]
    assert [[part.tag.split("}")[1] for part in mark] for mark in marks] == [["title", "path", "rect"]] * 2
