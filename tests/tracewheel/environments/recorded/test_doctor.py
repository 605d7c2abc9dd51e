"""The doctor on runs in a recorded environment, with unrecorded calls planted in the policy's turns."""

import json

import pandas as pd
import pytest

from tests.replaying import replay_traces
from tracewheel.config import RetrainConfig
from tracewheel.core.files import read_table, write_records
from tracewheel.environments.recorded.traces import recorded_episodes
from tracewheel.report.doctor import RunRecords, examine, read_iteration
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.score import score

EPISODES = 20


@pytest.fixture
def recorded(logs, make_recording):
    """An environment's kind, and the task of a second turn whose opening has a reply that looks like an unrecorded call."""
    says_so = "unrecorded call: no log shows what stock replies to this here; the episode ends without a score"
    first = [("user", "Two teas."), ("stock", {"item": "cake"}, says_so), ("say", "No cake. Anything else?")]
    more = [("user", "What is left?"), ("stock", {"item": "tea"}, "1"), ("stock", {"item": "pie"}, says_so), ("say", "One.")]
    traces = pd.DataFrame([logs.record("win", logs.conversation(*first, *more), task="x", outcome=1.0)])
    kind, _ = make_recording(traces)
    _, tasks = replay_traces(recorded_episodes(traces, kind)[0], kind)
    return kind, next(task for task in tasks.values() if task.prompt == "What is left?")


@pytest.fixture
def run(recorded, scripted_engine, renderer, call_text, tmp_path):
    """Iterations of real episodes, a given number of which make an unrecorded call; scored by the real stage."""
    kind, task = recorded
    rollout = {"max_tokens": 4000, "max_turn_tokens": 500}
    config = RetrainConfig.model_validate({"name": "test", "environment": {"kind": kind}, "rollout": rollout})
    known = [call_text("stock", item="tea"), call_text("stock", item="pie"), "One."]
    unknown = [call_text("stock", item="tea"), call_text("buy", item="sugar", count=1), "Bought."]

    def play(*strayed):
        iterations = []
        for number, count in enumerate(strayed, 1):
            folder = tmp_path / f"iteration-{number}"
            folder.mkdir()
            scripts = [unknown] * count + [known] * (EPISODES - count)
            engine = scripted_engine(renderer, scripts)
            episodes = run_episodes(engine, renderer, config.rollout, RolloutPlan([task], samples=EPISODES, seed=number))
            write_records(folder / "trajectories.parquet", episodes)
            score(config, [task], folder / "trajectories.parquet", folder)
            iterations.append(read_iteration(config, number, [folder], [folder], None))
        return RunRecords(config, iterations), tmp_path

    return play


def found(records, name="unrecorded_calls"):
    (finding,) = [item for item in examine(records) if item.check == name]
    assert "itself failed" not in finding.advice
    return finding


def test_recorded_calls_are_healthy_whatever_the_replies(run):
    finding = found(run(0, 0)[0])
    assert (finding.severity, finding.iterations, finding.advice) == ("healthy", (), "")
    assert (finding.evidence["share"], finding.evidence["of"]) == (0.0, EPISODES)
    assert (finding.evidence["in all, share of calls"], finding.evidence["in all, tools"]) == (0.0, [])


def test_many_unrecorded_calls_are_severe(run):
    records, folder = run(0, 0, 20, 20)
    finding = found(records)
    assert (finding.severity, finding.iterations) == ("severe", (3, 4))
    assert finding.evidence["by_iteration"] == {1: 0.0, 2: 0.0, 3: 20 / 60, 4: 40 / 60}
    assert finding.evidence["in all, share of calls"] == 40 / 160, "two readable calls in each of 80 episodes"
    assert finding.evidence["in all, tools"] == ["buy"]
    assert "data record" in finding.advice and "simulator" in finding.advice and "preference pairs" in finding.advice
    scores = read_table(folder / "iteration-4" / "scores.parquet")
    assert set(scores["status"]) == {"unscored"} and scores["total"].isna().all(), (
        "episodes with an unrecorded call are unscored"
    )


def test_some_unrecorded_calls_are_a_warning_and_too_few_are_ignored(run):
    records, _ = run(2, 7, 6)
    assert (found(records).severity, found(records).iterations) == ("warning", (2, 3))  # 9 of 40, 15 of 60: at least 0.12, 0.16


def test_thresholds_come_from_the_profile(run):
    records, _ = run(2, 7, 6)
    doctor = {"limits": {"unrecorded_calls": [0.1, 0.2]}}
    config = RetrainConfig.model_validate(records.config.model_dump() | {"doctor": doctor})
    assert found(RunRecords(config, records.iterations)).severity == "severe"


def test_infrastructure_failures_are_ignored(run):
    records, folder = run(5)
    table = read_table(folder / "iteration-1" / "trajectories.parquet")
    failed = [
        row | {"stop_reason": "infrastructure_failed", "final_state": "{}"} if number >= 10 else row
        for number, row in enumerate(table.to_dict("records"))
    ]
    pd.DataFrame(failed).to_parquet(folder / "iteration-1" / "trajectories.parquet")
    again = read_iteration(records.config, 1, [folder / "iteration-1"], [folder / "iteration-1"], None)
    finding = found(RunRecords(records.config, [again]))
    assert (finding.evidence["share"], finding.evidence["of"]) == (0.5, 10)


def test_without_episodes_nothing_is_checked(run):
    records, _ = run()
    assert (found(records).severity, found(records).advice) == ("not_checked", "No trajectories are stored.")


def test_calls_of_the_opening_are_not_counted(run):
    """The opening has one more call, with a reply that looks like the environment's error."""
    records, folder = run(0)
    stored = read_table(folder / "iteration-1" / "trajectories.parquet")
    assert (
        stored["messages"].map(lambda text: sum(bool(m.get("tool_calls")) for m in json.loads(text))).tolist() == [3] * EPISODES
    )
    assert records.episodes["named_calls"].tolist() == [2] * EPISODES
