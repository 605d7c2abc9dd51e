"""Trajectories as MLflow traces: readable by the public interface, with scores, never twice."""

import random
from dataclasses import replace

import pytest

from tasks.tracking.client import make_client
from tasks.tracking.log_run import Target
from tasks.tracking.traces import EvaluationTags, log_traces
from tracewheel.core.files import read_records, write_records
from tracewheel.core.types import Score, Trajectory
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import play
from tracewheel.environments.workspace.tasks import make_task
from tracewheel.scoring.score import write_scores

AT = 1_800_000_000_000


@pytest.fixture
def evaluation(tmp_path):
    """Four tasks and a folder with their greedy episodes; the last could not be scored."""
    rng = random.Random(1)
    tasks = [make_task("pattern", 1, rng) for _ in range(4)]
    trajectories, scores = [], []
    for number, task in enumerate(tasks):
        messages = play(task, solution(task))
        turns = [{"start": 0, "end": 1, "calls": 1, "malformed": 0, "policy_version": 1} for _ in solution(task)]
        trajectories.append(
            Trajectory(f"t{number}", task.id, task.id, 0, 0, 1, 1.0, [1], [1], [0.0], turns, {}, messages, "finished")
        )
        scores.append(Score(f"t{number}", task.id, task.id, "scored", 1.0, {"success": 1.0, "workspace.moved": 1.0}))
    scores[-1] = replace(scores[-1], status="unscored", total=None, breakdown={}, detail="verifier workspace: broke")
    (tmp_path / "greedy").mkdir()
    write_records(tmp_path / "greedy" / "trajectories.parquet", trajectories)
    write_scores(tmp_path / "greedy" / "scores.parquet", scores)
    return tasks, tmp_path


def log(run, evaluation, wanted, policy="rl"):
    tasks, folder = evaluation
    return log_traces(target_of(run), folder, tasks, wanted, EvaluationTags(policy, "held_out", run.record.run_id), at=AT)


def target_of(run):
    client, mlflow_run = make_client(run.config.tracking.uri), run.tracking.mlflow_run
    return Target(client, run.config.tracking, client.get_run(mlflow_run).info.experiment_id, mlflow_run)


def found(run):
    import mlflow

    mlflow.set_tracking_uri(run.config.tracking.uri)
    return mlflow.search_traces(
        locations=[target_of(run).experiment_id], run_id=run.tracking.mlflow_run, return_type="list", max_results=100
    )


def test_a_trace_has_the_turns_the_observations_and_the_scores(make_run, evaluation):
    run = make_run(tracked=True)
    assert log(run, evaluation, 4) == 4
    traces = {trace.info.tags["task_id"]: trace for trace in found(run)}
    tasks, _ = evaluation
    trace = traces[tasks[0].id]
    assert trace.info.tags["policy"] == "rl"
    assert trace.info.tags["split"] == "held_out"
    assert {item.name: item.value for item in trace.info.assessments} == {"total": 1.0, "success": 1.0, "workspace.moved": 1.0}
    spans = sorted(trace.data.spans, key=lambda span: (span.parent_id is not None, span.start_time_ns))
    assert spans[0].name == "episode"
    assert spans[0].inputs[1]["content"] == tasks[0].prompt
    calls = [name for name, _ in solution(tasks[0])]
    assert [span.name for span in spans[1:]] == [name for call in calls for name in ("turn", call)][: 2 * len(calls) - 1]
    assert all(span.parent_id == spans[0].span_id for span in spans[1:])


def test_an_earlier_conversation_is_not_part_of_the_episodes_turns(make_run, evaluation, tmp_path):
    """It is part of the episode's input, and the store returns it at its place."""
    tasks, folder = evaluation
    path = folder / "greedy" / "trajectories.parquet"
    first, *others = read_records(path, Trajectory)
    earlier = [{"role": "user", "content": "Are you there?"}, {"role": "assistant", "content": "Yes."}]
    opened = replace(first, messages=[first.messages[0], *earlier, *first.messages[1:]])
    write_records(path, [opened, *others])
    run = make_run(tracked=True)
    log(run, evaluation, 4)
    trace = next(trace for trace in found(run) if trace.info.tags["task_id"] == tasks[0].id)
    spans = sorted(trace.data.spans, key=lambda span: (span.parent_id is not None, span.start_time_ns))
    assert spans[0].inputs == opened.messages[:4] and spans[0].inputs[3]["content"] == tasks[0].prompt
    assert [span.name for span in spans].count("turn") == len(solution(tasks[0]))
    assert trace.info.request_preview == tasks[0].prompt[:500]


def test_an_unscored_episode_has_an_error_and_no_value(make_run, evaluation):
    run = make_run(tracked=True)
    log(run, evaluation, 4)
    tasks, _ = evaluation
    (total,) = next(trace for trace in found(run) if trace.info.tags["task_id"] == tasks[-1].id).info.assessments
    assert total.value is None
    assert "verifier workspace: broke" in str(total.feedback.error)


def test_only_missing_traces_are_added(make_run, evaluation):
    run = make_run(tracked=True)
    assert log(run, evaluation, 2) == 2
    assert log(run, evaluation, 4) == 2
    assert log(run, evaluation, 4) == 0
    assert log(run, evaluation, 4, policy="base") == 4
    assert len(found(run)) == 8
    assert log(run, evaluation, 0) == 0
