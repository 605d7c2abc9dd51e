"""Updates on programs' episodes that are below the gate's limit, and programs that write the policy's messages themselves."""

import pandas as pd
import pytest

from tracewheel.report.doctor import Iteration, RunRecords
from tracewheel.report.doctor.checks.intake import fidelity

METRICS = {"fidelity": 1.0, "requests": 100.0, "requests_unmatched": 0.0, "lost_tokens": 0.0}


@pytest.mark.parametrize(
    ("changed", "severity", "iterations"),
    [
        ({}, "healthy", ()),
        ({"fidelity": 0.98, "lost_tokens": 30.0}, "severe", (2,)),
        ({"requests_unmatched": 9.0}, "healthy", ()),
        ({"requests_unmatched": 10.0}, "warning", (2,)),
    ],
)
def test_what_is_said_of_an_update(config, changed, severity, iterations):
    updates = {1: METRICS, 2: {**METRICS, **changed}}
    finding = fidelity(RunRecords(config, [Iteration(number, pd.DataFrame(), made) for number, made in updates.items()]))
    assert (finding.severity, finding.iterations) == (severity, iterations)
    assert finding.evidence["lost tokens"] == changed.get("lost_tokens", 0)


def test_a_run_without_programs_is_not_checked(config):
    assert fidelity(RunRecords(config)).severity == "not_checked"
