"""The parts of a rubric over a run."""

from tracewheel.dashboard.curves import part_curves
from tracewheel.dashboard.measured import Iteration


def loop(*breakdowns):
    return [Iteration(number, {}, None, {}, parts) for number, parts in enumerate(breakdowns, start=1)]


def test_a_part_that_climbs_while_success_falls_comes_first():
    rows = [{"success": 0.5 - n / 10, "task": 0.5 - n / 10, "brief": 0.6, "polite_words": 0.2 + n / 10} for n in range(4)]
    first, second = part_curves(loop(*rows))
    assert first.title == "polite_words: climbs while success falls"
    assert second.title == "brief"
    assert list(first.series) == ["polite words", "success"]
    assert first.series["success"] == [(n + 1, 0.5 - n / 10) for n in range(4)]


def test_with_success_alone_or_without_it_there_is_nothing_to_compare():
    assert part_curves(loop({"success": 0.5, "task": 0.5}, {"success": 0.6, "task": 0.6})) == []
    assert part_curves(loop({"polite": 0.5}, {"polite": 0.6})) == part_curves([]) == []


def test_a_part_that_climbs_with_success_is_no_warning():
    (curve,) = part_curves(loop({"success": 0.1, "a": 0.2}, {"success": 0.5, "a": 0.6}, {"success": 0.6}))
    assert "climbs" not in curve.title and curve.series["a"][-1] == (3, None)
