"""Charts: ticks, gaps, and text that is only text."""

import re
from xml.etree import ElementTree

import pytest

from tracewheel.dashboard.charts import (
    axis_of,
    describe,
    difference_bar,
    integer_ticks,
    line_chart,
    nice_ticks,
    number,
    padded_range,
    rate_bar,
)
from tracewheel.dashboard.curves import Curve, training_curves
from tracewheel.report.results import Estimate


def test_a_chart_is_well_formed_and_inside_its_box():
    curve = Curve("Reward", {"a": [(1, 0.1), (2, 0.5)], "b": [(1, 0.2), (2, 2.0)]}, bounds=(0.0, 1.0), marked=2)
    svg = ElementTree.fromstring(line_chart(curve))
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in svg.iter("circle")]
    assert len(dots) == 4
    assert all(0 <= x <= width and 0 <= y <= height for x, y in dots)
    assert svg.find(".//line[@class='marked']") is not None


def test_higher_values_are_drawn_higher():
    svg = ElementTree.fromstring(line_chart(Curve("KL", {"KL": [(1, 0.0), (2, 0.1), (3, 0.05)]})))
    heights = [float(dot.attrib["cy"]) for dot in svg.iter("circle")]
    assert heights[1] < heights[2] < heights[0]


def test_a_gap_breaks_the_line():
    points = [(1, 0.1), (2, 0.2), (3, None), (4, 0.4), (5, float("nan")), (6, 0.6)]
    path = ElementTree.fromstring(line_chart(Curve("KL", {"KL": points}))).find(".//path").attrib["d"]
    assert path.count("M") == 3


@pytest.mark.parametrize(
    "points", [[(1, 0.5)], [(1, 0.0), (2, 0.0)], [(0, -1.0), (1, 1.0)], [(1, 1e-9), (2, 2e-9)], [(1, 5e6)]]
)
def test_any_values_make_a_chart(points):
    text = line_chart(Curve("x", {"x": points}))
    ElementTree.fromstring(text)
    assert "nan" not in text


def test_no_values_make_no_chart():
    assert line_chart(Curve("x", {"x": [(1, None)]})) == ""


def test_names_are_escaped():
    svg = line_chart(Curve("<b>", {'"><script>': [(1, 0.5)]}))
    assert "<script>" not in svg and "<b>" not in svg
    assert ElementTree.fromstring(svg).attrib["aria-label"].startswith("<b>")


def test_ticks_are_round():
    assert nice_ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1.0]
    assert nice_ticks(0, 0.042) == [0, 0.02, 0.04]
    assert nice_ticks(0, 262) == [0, 100, 200]
    assert integer_ticks(1, 3) == [1, 2, 3]
    assert integer_ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert len(integer_ticks(0, 1000)) <= 7
    assert padded_range([0.0]) == (0.0, 1.0)
    assert padded_range([-1.0]) == (-1.0, 0.0)


def test_numbers_and_descriptions_are_short():
    assert [number(v) for v in (0, 0.25, 0.04000001, 12345.6, 0.00002)] == ["0", "0.25", "0.04", "12,346", "2.0e-05"]
    text = describe(Curve("KL", {"KL": [(1, 0.1), (2, None), (3, 0.3)]}))
    assert re.fullmatch(r"KL: KL from 0\.1 at iteration 1 to 0\.3 at iteration 3", text)


def test_intervals_are_drawn_and_said_and_points_lead_somewhere():
    curve = Curve("Success", {"a": [(1, 0.5), (2, 0.7)]}, bands={"a": [(1, 0.4, 0.6)]}, axis="run", links={2: "/runs/x"})
    svg = line_chart(curve)
    assert 'class="band s0 alone"' in svg
    assert "a, run 1: 0.5 (0.4 to 0.6)" in svg
    assert '<a href="/runs/x"><circle' in svg
    assert "iteration" not in svg


def test_a_rate_is_drawn_from_zero_with_its_interval():
    svg = ElementTree.fromstring(rate_bar(Estimate(0.5, 0.4, 0.65, 10), "rl"))
    bar = svg.findall("rect")[1]
    assert (bar.attrib["width"], bar.attrib["class"]) == ("50.00", "f-rl")
    assert svg.find("path").attrib["d"].startswith("M40.00 2V10")
    assert "M65.00 2V10" in svg.find("path").attrib["d"]


def test_an_unknown_policy_cannot_name_a_class():
    assert '"f-other"' in rate_bar(Estimate(0.5, 0.4, 0.6, 10), '"><script>')


def test_a_loss_is_drawn_left_of_zero_in_another_colour():
    svg = ElementTree.fromstring(difference_bar(-0.5, (-0.75, 0.25), (-1.0, 1.0)))
    bar = svg.findall("rect")[1]
    assert (bar.attrib["x"], bar.attrib["width"], bar.attrib["class"]) == ("25.00", "25.00", "f-fall")


def test_an_axis_holds_zero_and_every_end():
    low, high = axis_of([0.2, None, 0.5])
    assert low < 0.0
    assert high > 0.5
    assert axis_of([]) == (-0.1, 0.1)


def test_only_measured_curves_are_drawn():
    updates = {1: {"kl": 0.1, "reward": 0.3}, 2: {"reward": 0.4}, 3: {"kl": 0.2}}
    validation = {0: {"greedy": 0.5, "sampled": None, "harder_greedy": 0.2}, 2: {"greedy": 0.6, "sampled": None}}
    curves = {curve.title: curve for curve in training_curves(updates, validation, 2)}
    assert list(curves["Validation success"].series) == ["greedy"] and curves["Validation success"].marked == 2
    assert set(curves["Harder tier over iterations"].series) == {"harder greedy"}
    assert dict(curves["KL"].series["KL"])[2] is None, "a gap, not a zero"
    assert "Turns" not in curves and "Clipped share" not in curves
