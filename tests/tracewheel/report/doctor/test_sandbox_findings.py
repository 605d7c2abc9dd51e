"""What the sandbox found of an episode's code is found by the doctor, with the episodes to read."""

import pandas as pd
import pytest

from tracewheel.report.doctor import RunRecords
from tracewheel.report.doctor.checks.rewards import sandbox_findings
from tracewheel.report.doctor.episode_rows import _findings


def records(config, *findings):
    rows = [
        {"iteration": n % 3, "id": f"{n:016x}", **({} if names is None else {"findings": names})}
        for n, names in enumerate(findings)
    ]
    made = RunRecords(config)
    made.__dict__["episodes"] = pd.DataFrame(rows)  # in place of those that it would read from the iterations
    return made


@pytest.mark.parametrize(
    ("findings", "severity", "examples"),
    [
        ((None, None), "not_checked", {}),
        (("", "", None), "healthy", {}),
        (("timeout", "", "timeout"), "healthy", {}),
        (("", "memory", "timeout disk"), "warning", {"episodes with disk": [2], "episodes with memory": [1]}),
        (
            ("memory", "", "timeout", "escape", "output escape"),
            "severe",
            {"episodes with escape": [3, 4], "episodes with memory": [0], "episodes with output": [4]},
        ),
    ],
)
def test_severity_and_examples_of_each_kind(config, findings, severity, examples):
    found = sandbox_findings(records(config, *findings))
    assert found.severity == severity and bool(found.advice) is (severity != "healthy")
    lists = {name: value for name, value in found.evidence.items() if isinstance(value, list)}
    assert lists == {name: [f"{n:016x}" for n in numbers] for name, numbers in examples.items()}
    assert list(lists) == list(examples)  # the worst first


def test_the_counts_are_of_episodes(config):
    found = sandbox_findings(records(config, "memory memory", "memory disk", "", None))
    assert found.evidence["episodes that ran code"] == 3 and (found.evidence["memory"], found.evidence["disk"]) == (2, 1)
    assert found.iterations == (0, 1)


def test_an_episode_that_was_flagged_is_a_warning(config):
    made = records(config, "", "", None)
    made.episodes["flagged"] = [False, True, True]  # the last one ran no code: its flag is a judge's
    found = sandbox_findings(made)
    assert (found.severity, found.evidence["flagged by a verifier"], found.iterations) == ("warning", 1, (1, 2))
    assert found.evidence["episodes flagged by a verifier"] == [f"{1:016x}"]
    assert found.evidence["episodes flagged by a judge"] == [f"{2:016x}"]
    talk = records(config, None, None)
    assert sandbox_findings(talk).severity == "not_checked"
    talk.episodes["flagged"] = [False, True]
    assert sandbox_findings(talk).severity == "warning"


@pytest.mark.parametrize(
    ("state", "column"),
    [
        ('{"files": {}, "findings": ["escape", "disk"]}', {"findings": "escape disk"}),
        ('{"files": {}, "findings": []}', {"findings": ""}),
        ('{"files": {"findings": 1}}', {}),
        ('{"notes": "the \\\\"findings\\\\" of May"}', {}),
        ('["findings"]', {}),
        ('{"findings": "none"}', {}),
    ],
)
def test_the_column_is_of_the_states_that_list_findings(state, column):
    assert _findings(state) == column
