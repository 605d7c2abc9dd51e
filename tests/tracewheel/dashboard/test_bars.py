"""Bars as SVG: where their ends lie."""

from xml.etree import ElementTree

from tracewheel.dashboard.charts import axis_of, difference_bar, rate_bar
from tracewheel.report.results import Estimate


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
