"""`tracewheel runs labels`: counts, the graders against people, and assessments in MLflow that a second call leaves alone."""

import argparse
import json
import shutil
from types import SimpleNamespace

import pytest

from flows.cli import main
from tasks.tracking.client import make_client
from tasks.tracking.log_run import Target
from tasks.tracking.traces import EvaluationTags, log_traces
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_records, write_records
from tracewheel.core.types import Score, Trajectory
from tracewheel.report.finished_run import FinishedRun
from tracewheel.scoring.score import write_scores
from tracewheel_labels.commands.labels import COMMAND
from tracewheel_labels.in_mlflow import log_labels
from tracewheel_labels.labels import Label, add_label

ENTRY = "evaluate-0000000000000001"


@pytest.fixture
def logged(make_run):
    """A run that MLflow has the two greedy trajectories of an evaluation of."""
    run = make_run(tracked=True)
    folder = run.record.path.parent / "store" / ENTRY
    (folder / "greedy").mkdir(parents=True)
    turns = [{"start": 0, "end": 1, "calls": 0, "malformed": 0, "policy_version": 1}]
    said = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Done."}]
    trajectories = [
        Trajectory(f"t{n}", f"k{n}", f"k{n}", 0, 0, 1, 1.0, [1], [1], [0.0], turns, {}, said, "finished") for n in (0, 1)
    ]
    write_records(folder / "greedy" / "trajectories.parquet", trajectories)
    write_scores(folder / "greedy" / "scores.parquet", [Score(f"t{n}", f"k{n}", f"k{n}", "scored", 1.0, {}) for n in (0, 1)])
    assert read_records(folder / "greedy" / "trajectories.parquet", Trajectory) == trajectories
    client, mlflow_run = make_client(run.config.tracking.uri), run.tracking.mlflow_run
    target = Target(client, run.config.tracking, client.get_run(mlflow_run).info.experiment_id, mlflow_run)
    tasks = [SimpleNamespace(id=f"k{n}", family="f", tier=1) for n in (0, 1)]
    log_traces(target, folder, tasks, 2, EvaluationTags("rl", "held_out", run.record.run_id), at=1_800_000_000_000)
    return FinishedRun(run.record, {"mlflow_run": mlflow_run}), target


def reviews(run, target):
    """Trajectory to who said what of it in MLflow."""
    from mlflow.tracing.client import TracingClient

    found = TracingClient(run.config.tracking.uri).search_traces(locations=[target.experiment_id], include_spans=False)
    return {
        trace.info.tags["trajectory"]: sorted(
            (one.source.source_id, one.source.source_type, one.feedback.value, one.rationale)
            for one in trace.info.assessments
            if one.name == "review"
        )
        for trace in found
    }


def test_labels_become_assessments_of_a_person_once(logged):
    run, target = logged
    label = lambda name, said, who="Ada", part="greedy", **more: add_label(  # noqa: E731
        run.record.path, Label(ENTRY, part, name, said, who, **more)
    )
    label("t0", "right", note="well done")
    label("t0", "wrong", who="Bob")
    label("t1", "grader at fault")
    label("t1", "right", part="sampled")
    label("gone", "right")
    told = []
    assert log_labels(run, told.append) == {"logged": 3, "unchanged": 0, "withdrawn": 0, "without_trace": 2}
    assert reviews(run, target) == {
        "t0": [("Ada", "HUMAN", "right", "well done"), ("Bob", "HUMAN", "wrong", None)],
        "t1": [("Ada", "HUMAN", "grader at fault", None)],
    }
    label("t0", "withdrawn", who="Bob")
    label("t1", "right")
    assert log_labels(run, told.append) == {"logged": 1, "unchanged": 1, "withdrawn": 1, "without_trace": 2}
    assert reviews(run, target) == {
        "t0": [("Ada", "HUMAN", "right", "well done")],
        "t1": [("Ada", "HUMAN", "right", None)],
    }


def test_a_run_that_is_not_complete_has_no_place_for_them(make_run):
    with pytest.raises(DataError, match="the run is not complete, or its MLflow run is not known"):
        log_labels(FinishedRun(make_run().record), print)


def test_the_command_counts_and_compares(shown, run_ids, tmp_path, capsys):
    work = shutil.copytree(shown, tmp_path / "work", ignore=shutil.ignore_patterns(".dashboard*"))
    record = work / run_ids[-1]
    lost = next(one for one in json.loads((record / "changes.json").read_text()) if one["change"] == "lost")
    entry, part, _ = lost["challenger"]["file"].split("/")
    add_label(record, Label(entry, part, lost["challenger"]["trajectory"], "wrong", "Ada", why="random"))
    assert main(["runs", "labels", str(record), "--local", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["labels"] == {"right": 0, "wrong": 1, "grader at fault": 0} and found["mlflow"] is None
    score = next(row for row in found["agreement"] if (row["grader"], row["group"]) == ("score", "random sample"))
    assert (score["labelled"], score["agreeing"], score["rate"]) == (1, 1, 1.0)
    card = COMMAND.card(argparse.Namespace(), {**found, "mlflow": {"without_trace": 1}})
    assert ("wrong", "1") in card.rows and ("MLflow", "without trace 1") in card.rows
