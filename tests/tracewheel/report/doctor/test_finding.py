"""Findings as records and sentences, and the severity of figures."""

import json

import pytest
from pydantic import ValidationError

from tracewheel.config import DoctorConfig, Limits
from tracewheel.report.doctor import Finding, worst
from tracewheel.report.doctor.measures import medians, rates, severity_above, severity_below


def test_a_finding_round_trips_through_json():
    finding = Finding("kl_explosion", "severe", {"kl": 4.0}, "Slow down.", (3, 4), "content")
    assert Finding.from_record(json.loads(json.dumps(finding.to_record()))) == finding


def test_a_finding_as_a_sentence():
    finding = Finding(
        "truncation", "severe", {"share": 0.51234, "names": ["a", "b"], "by_iteration": {1: 0.5}}, "Cut less.", (2, 4, 5, 6)
    )
    assert finding.sentence == "truncation (iteration 2, 4 to 6): share 0.512, names a, b. Cut less."


def test_worst():
    assert worst(["healthy", "warning", "not_checked"]) == "warning"
    assert worst(["healthy", "not_checked"]) == "not_checked"
    assert worst([]) == "healthy"


def test_rates_cover_a_window_of_iterations():
    found = rates({2: 10, 3: 10}, {1: 10, 2: 10, 3: 10, 4: 10}, window=2)
    assert [round(found[number].value, 3) for number in (1, 2, 3, 4)] == [0.0, 0.5, 1.0, 0.5]
    assert found[2].low == pytest.approx(0.2993, abs=1e-4)  # Wilson's interval of 10 of 20


def test_medians_ignore_one_outlier():
    assert medians({1: 1.0, 2: 9.0, 3: 2.0, 5: 3.0}, window=3) == {1: 1.0, 2: 5.0, 3: 2.0, 5: 3.0}


@pytest.mark.parametrize(
    ("value", "bound", "severity"),
    [(0.05, None, "healthy"), (0.1, None, "warning"), (0.3, None, "severe"), (0.5, 0.09, "healthy"), (0.5, 0.1, "severe")],
)
def test_severity_above(value, bound, severity):
    assert severity_above(value, Limits(0.1, 0.3), lower_bound=bound) == severity


@pytest.mark.parametrize(
    ("value", "bound", "severity"),
    [(0.3, None, "healthy"), (0.2, None, "warning"), (0.05, None, "severe"), (0.0, 0.21, "healthy"), (0.0, 0.2, "severe")],
)
def test_severity_below(value, bound, severity):
    assert severity_below(value, Limits(0.2, 0.05), upper_bound=bound) == severity


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop_on": ["nothing"]},
        {"limits": {"kl": [1.0, 0.5]}},
        {"limits": {"entropy": [0.1, 0.5]}},
        {"limits": {"kll": [1, 2]}},
    ],
)
def test_invalid_limits_are_refused(wrong):
    with pytest.raises(ValidationError):
        DoctorConfig.model_validate(wrong)
