"""The check of held-out use: links to what was trained on warn, a leak that was let pass is severe."""

import pytest

from tracewheel.report.doctor import examine
from tracewheel.report.doctor.run_records import RunRecords

LEDGER = {
    "number": 3,
    "lost": False,
    "leaks": False,
    "gave_way": 0,
    "gave_way_trained": 0,
    "retired_held_out": 0,
    "retired_validation": 0,
    "rotated": 5,
}


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({}, "healthy"),
        ({"gave_way": 2}, "healthy"),
        ({"gave_way": 2, "gave_way_trained": 1}, "warning"),
        ({"retired_held_out": 1}, "warning"),
        ({"quoting": 1, "quoted": 0}, "healthy"),
        ({"quoting": 1, "quoted": 1}, "warning"),
        ({"lost": True}, "warning"),
        ({"leaks": True}, "severe"),
    ],
)
def test_what_was_used_before_is_said(config, change, severity):
    records = RunRecords(config, split_ledger=LEDGER | change)
    (finding,) = [item for item in examine(records) if item.check == "held_out_use"]
    assert finding.severity == severity
    assert bool(finding.advice) is (severity != "healthy")
    assert finding.evidence["number"] == 3


def test_without_a_ledger_it_is_not_checked(config):
    (finding,) = [item for item in examine(RunRecords(config)) if item.check == "held_out_use"]
    assert finding.severity == "not_checked"
