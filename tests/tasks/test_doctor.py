"""The watch on a loop: what it records and reports, and how it stops a run."""

import json

import pandas as pd
import pytest

from tasks.engine.drivers import DirectDriver
from tasks.engine.run import Policy, Run, Silent
from tasks.records.doctor import FINDINGS_FILE, Watch, stored_findings
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import UnhealthyRun
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Entry, Store
from tracewheel.core.types import Score
from tracewheel.report.doctor import LOOP_FILE
from tracewheel.scoring.score import write_scores

TASKS, SAMPLES = 8, 4
PROFILE = RetrainConfig.model_validate({"name": "test"})


class Listener(Silent):
    """A reporter that keeps its messages."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def trajectories(number, *, cut):
    """The episodes of an iteration; with `cut`, every failed one ended at a cap."""
    rows = []
    for task in range(TASKS):
        for sample in range(SAMPLES):
            rows.append(
                {
                    "id": f"{number}-{task}-{sample}", "task_id": f"k{task}", "group": f"k{task}", "policy_version": number - 1,
                    "stop_reason": "max_tokens" if cut and sample % 2 == 0 else "finished", "token_ids": [1, 2, 3 + sample, 9],
                    "action_mask": [0, 0, 1, 1], "logprobs": [0.0, 0.0, -1.0, -0.1], "messages": "[]",
                    "turns": json.dumps([{"start": 2, "end": 4, "calls": 1, "malformed": 0, "policy_version": number - 1}]),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


class Loop:
    """A loop without stages, with the entries that they would have made."""

    def __init__(self, root, config=None):
        self.listener = Listener()
        config = config or PROFILE
        self.run = Run(
            config,
            Store(root / "store"),
            RunRecord(root, "run"),
            self.listener,
            driver=DirectDriver(),
        )
        curated = self.entry("curate", 0)
        pd.DataFrame({"id": [f"k{n}" for n in range(TASKS)], "family": ["list"] * TASKS}).to_parquet(
            curated.path / "tasks.parquet"
        )
        self.validations = {0: self.entry("evaluate", 0)}
        pd.DataFrame(
            {"task_id": ["v1"], "family": ["list"], "greedy": [1.0], "sampled_successes": [1], "sampled_attempts": [1]}
        ).to_parquet(self.validations[0].path / "results.parquet")
        self.watch = Watch(self.run, curated, Policy("start", "base", curated))

    def entry(self, stage, number, key="a"):
        path = self.run.store.root / f"{stage}-{key}{number}"
        path.mkdir(parents=True, exist_ok=True)
        return Entry(stage, f"{key}{number}", path, "digest", 1.0, {})

    def go(self, number, *, cut=False, key="a"):
        rollout, scores, update = (self.entry(stage, number, key) for stage in ("rollout", "score", "update"))
        table = trajectories(number, cut=cut)
        table.to_parquet(rollout.path / "trajectories.parquet")
        marks = [Score(row.id, row.task_id, row.group, "scored", float(i % 2), {"success": float(i % 2)})
                 for i, row in enumerate(table.itertuples())]  # fmt: skip
        write_scores(scores.path / "scores.parquet", marks)
        (update.path / "metrics.json").write_text('{"generated_tokens": 2.0, "kl": 0.01}')
        return self.watch.see(number, self.validations, rollouts=[rollout], scores=[scores], update=update)

    def read(self, name):
        return json.loads((self.run.record.path / name).read_text())


@pytest.fixture(autouse=True)
def one_iteration(monkeypatch):
    """Figures cover one iteration, so that each test needs few."""
    monkeypatch.setattr("tracewheel.report.doctor.checks.episodes.WINDOW", 1)
    monkeypatch.setattr("tracewheel.report.doctor.checks.training.WINDOW", 1)


@pytest.fixture
def config():
    return RetrainConfig.model_validate({"name": "test", "doctor": {"stop_on": ["truncation"]}})


def alarms(findings):
    return {item.check: item.severity for item in findings if item.severity in ("severe", "warning")}


def test_the_entries_of_each_iteration_are_recorded(tmp_path):
    loop = Loop(tmp_path)
    assert alarms(loop.watch.see(0, loop.validations)) == {}
    loop.go(1)
    loop.go(2)
    assert loop.read(LOOP_FILE) == {
        "start_version": 0,
        "curated": "curate-a0",
        "validations": {"0": "evaluate-a0"},
        "iterations": {
            "1": {"rollouts": ["rollout-a1"], "scores": ["score-a1"], "update": "update-a1"},
            "2": {"rollouts": ["rollout-a2"], "scores": ["score-a2"], "update": "update-a2"},
        },
    }
    assert loop.read(FINDINGS_FILE)["iteration"] == 2
    assert not list(loop.run.record.path.glob(".partial-*"))


def test_a_warning_is_reported_once(tmp_path):
    loop = Loop(tmp_path)
    assert alarms(loop.go(1)) == {}
    assert alarms(loop.go(2, cut=True)) == {"truncation": "severe"}
    loop.go(3, cut=True)
    assert len(loop.listener.said) == 1
    assert loop.listener.said[0].startswith("doctor, severe: truncation (iteration 2): share 0.5,")


def test_a_resumed_run_examines_no_iteration_again(tmp_path, monkeypatch):
    loop = Loop(tmp_path)
    for number in (1, 2, 3):
        loop.go(number)
    again = Loop(tmp_path)
    monkeypatch.setattr("tasks.records.doctor.examine", lambda records: pytest.fail("examined again"))
    assert again.watch.see(0, again.validations) == []
    assert [again.go(number) for number in (1, 2, 3)] == [[], [], []]


def test_after_a_resume_earlier_iterations_are_examined_too(tmp_path):
    loop = Loop(tmp_path)
    loop.go(1)
    loop.go(2, cut=True)
    again = Loop(tmp_path)
    again.go(1)
    again.go(2, cut=True)
    (finding,) = [item for item in again.go(3, cut=True) if item.check == "truncation"]
    assert finding.iterations == (2, 3)


def test_changed_limits_examine_the_run_again(tmp_path):
    loop = Loop(tmp_path)
    loop.go(1, cut=True)
    lenient = RetrainConfig.model_validate({"name": "test", "doctor": {"limits": {"truncation": [1, 1]}}})
    assert [item.severity for item in Loop(tmp_path, lenient).go(1, cut=True) if item.check == "truncation"] == ["healthy"]


def test_iterations_after_a_changed_one_are_forgotten(tmp_path):
    loop = Loop(tmp_path)
    for number in (1, 2, 3):
        loop.go(number)
    again = Loop(tmp_path)
    again.go(1)
    again.go(2, key="b")
    assert list(again.read(LOOP_FILE)["iterations"]) == ["1", "2"]
    assert again.read(LOOP_FILE)["iterations"]["2"]["update"] == "update-b2"


def test_a_severe_finding_stops_the_run_with_everything_written(tmp_path, config):
    loop = Loop(tmp_path, config)
    loop.go(1)
    with pytest.raises(UnhealthyRun, match="run run stopped after iteration 2: truncation") as stopped:
        loop.go(2, cut=True)
    assert "doctor.stop_on=[]" in str(stopped.value)
    assert stopped.value.args[1]["severity"] == "severe"
    assert loop.read(LOOP_FILE)["iterations"]["2"]["update"] == "update-a2"
    assert {item.check for item in stored_findings(loop.run.record) if item.severity == "severe"} == {"truncation"}
    with pytest.raises(UnhealthyRun):  # resuming stops again while the cause remains
        again = Loop(tmp_path, config)
        again.go(1)
        again.go(2, cut=True)


def test_a_past_finding_does_not_stop_a_run(tmp_path, config):
    warned = Loop(tmp_path)
    warned.go(1, cut=True)
    warned.go(2)
    loop = Loop(tmp_path, config)
    assert alarms(loop.go(2)) == {"truncation": "severe"}


def test_the_report_gets_the_findings_of_the_loop(tmp_path):
    loop = Loop(tmp_path)
    assert stored_findings(loop.run.record) == []
    loop.go(1, cut=True)
    assert {item.severity for item in stored_findings(loop.run.record) if item.check == "truncation"} == {"severe"}
