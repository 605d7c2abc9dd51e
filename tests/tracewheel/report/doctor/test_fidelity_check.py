"""Updates on programs' episodes that are below the gate's limit, and programs that write the policy's messages themselves."""

import pandas as pd
import pytest

from tracewheel.report.doctor import Iteration, RunRecords
from tracewheel.report.doctor.checks.episodes import broken_programs
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


def test_what_of_requests_was_left_out_or_refused_is_listed(config):
    updates = {1: {**METRICS, "dropped.top_k": 3.0}, 2: {**METRICS, "dropped.top_k": 4.0, "refused.messages": 1.0}}
    finding = fidelity(RunRecords(config, [Iteration(number, pd.DataFrame(), made) for number, made in updates.items()]))
    assert finding.evidence["fields left out or refused"] == {"dropped.top_k": 7, "refused.messages": 1}
    plain = fidelity(RunRecords(config, [Iteration(1, pd.DataFrame(), METRICS)]))
    assert "fields left out or refused" not in plain.evidence


def test_a_run_without_programs_is_not_checked(config):
    assert fidelity(RunRecords(config)).severity == "not_checked"


def test_programs_that_fail_are_named(config):
    def found(*details):
        episodes = pd.DataFrame({"iteration": 1, "stop_reason": "finished", "broken": list(details)})
        return broken_programs(RunRecords(config, [Iteration(1, episodes, {})]))

    finding = found(*["exit code 1: no luck"] * 2, "exit code 2", *[None] * 17)
    assert (finding.severity, finding.iterations) == ("warning", (1,))
    assert (finding.evidence["most often"], finding.evidence["so many"]) == ("exit code 1: no luck", 2)
    assert found("exit code 1", *[None] * 29).severity == "healthy"
    assert broken_programs(RunRecords(config)).severity == "not_checked"
