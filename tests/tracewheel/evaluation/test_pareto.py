"""The Pareto front by hand, and against its definition on random candidates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.evaluation.pareto import pareto_points


def front(candidates):
    return [point.name for point in pareto_points(candidates) if point.on_front]


def test_a_hand_worked_front():
    candidates = {
        "start": {"success": 0.5, "safety": 0.9, "thrift": 0.5},
        "rl-2": {"success": 0.7, "safety": 0.9, "thrift": 0.5},
        "rl-4": {"success": 0.8, "safety": 0.7, "thrift": 0.5},
        "rl-6": {"success": 0.6, "safety": 0.6, "thrift": 0.4},
    }
    points = {point.name: point for point in pareto_points(candidates)}
    assert [name for name, point in points.items() if point.on_front] == ["rl-2", "rl-4"]
    assert points["start"].beaten_by == ("rl-2",)
    assert points["rl-6"].beaten_by == ("rl-2", "rl-4")
    assert points["start"].to_record() == {
        "name": "start",
        "objectives": {"success": 0.5, "safety": 0.9, "thrift": 0.5},
        "beaten_by": ["rl-2"],
        "on_front": False,
    }


def test_equal_candidates_share_the_front_and_unmeasured_ones_are_off_it():
    assert front({"a": {"x": 1.0}, "b": {"x": 1.0}, "c": {"x": 0.5}}) == ["a", "b"]
    points = {point.name: point for point in pareto_points({"a": {"x": 0.1, "y": 0.1}, "b": {"x": 0.9, "y": None}})}
    assert points["a"].on_front and not points["b"].on_front and points["b"].beaten_by == ()
    assert pareto_points({}) == []


def test_candidates_with_different_objectives_cannot_be_compared():
    with pytest.raises(ValueError, match="different objectives: x, y"):
        pareto_points({"a": {"x": 1.0}, "b": {"y": 1.0}})


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=12))
def test_every_beaten_candidate_is_beaten_by_one_on_the_front(values):
    candidates = {str(index): dict(zip("abc", map(float, value), strict=True)) for index, value in enumerate(values)}
    points = {point.name: point for point in pareto_points(candidates)}
    on_it = {name for name, point in points.items() if point.on_front}
    assert on_it
    for name, point in points.items():
        if name not in on_it:
            assert on_it & set(point.beaten_by)
    for name in on_it:
        for other in candidates.values():
            better = [other[key] - candidates[name][key] for key in "abc"]
            assert min(better) < 0 or max(better) == 0
