"""Data in a real MLflow store: inputs with digest, figures and schema, the quality report once, and a tag for a leak."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pandas
import pyarrow
import pytest

from tasks.tracking.datasets import leaks_of, log_datasets, mlflow_schema
from tasks.tracking.tracking import LONGEST_TAG
from tracewheel.config import CurationConfig, IngestConfig, RetrainConfig
from tracewheel.core.store import Entry
from tracewheel.curation.curate import curate
from tracewheel.traces.ingest import ingest

LOGS = str(Path(__file__).parents[2] / "data/traces/workspace.jsonl")
FEW = CurationConfig(train_tasks=10, validation_tasks=2, held_out_tasks=2, harder_tasks=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Ingested and curated logs as entries of a store."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "traces").mkdir()
    report = ingest(IngestConfig(paths=(LOGS,)), folder / "traces")
    curated = curate(
        RetrainConfig(name="test", environment={"kind": "workspace"}, curation=FEW), folder / "traces", folder / "curated"
    )
    return (
        Entry("ingest", "k", folder / "traces", "d" * 64, 0.0, report),
        Entry("curate", "k", folder / "curated", "e" * 64, 0.0, curated),
    )


def logged(run):
    found = run.tracking.client.get_run(run.tracking.mlflow_run_id)
    return {item.dataset.name: item for item in found.inputs.dataset_inputs}, found.data.tags


def test_data_are_inputs_with_digest_figures_and_schema(make_run, made):
    traces, curated = made
    run = make_run(tracked=True)
    log_datasets(run, traces, curated)
    inputs, _ = logged(run)
    contexts = {name: item.tags[0].value for name, item in inputs.items()}
    assert contexts == {
        "traces": "logs", "curated tasks": "curation", "train tasks": "training", "validation tasks": "validation",
        "held-out tasks": "test", "harder tasks": "test",
    }  # fmt: skip
    shown = inputs["traces"].dataset
    assert shown.digest == "d" * 36 and json.loads(shown.source) == {"uri": str(traces.path)}
    profile = json.loads(shown.profile)
    assert profile["num_rows"] == profile["kept"] == 762
    rows = {name: json.loads(item.dataset.profile)["num_rows"] for name, item in inputs.items()}
    assert rows == {
        "traces": 762, "curated tasks": 15, "train tasks": 10, "validation tasks": 2, "held-out tasks": 2, "harder tasks": 1,
    }  # fmt: skip
    columns = {item["name"]: item["type"] for item in json.loads(inputs["held-out tasks"].dataset.schema)["mlflow_colspec"]}
    assert list(columns) == list(pandas.read_parquet(curated.path / "tasks.parquet").columns)
    assert (columns["prompt"], columns["attempts"], columns["pass_rate"]) == ("string", "long", "double")


def test_a_split_has_the_digest_of_its_own_tasks(make_run, made, tmp_path):
    """Another held-out task changes the digest of the held-out set but not that of the training set."""
    traces, curated = made
    tasks = pandas.read_parquet(curated.path / "tasks.parquet")
    tasks.loc[tasks["split"] == "held_out", "id"] += "x"
    tasks.to_parquet(tmp_path / "tasks.parquet")
    for name in ("quality.json", "splits.parquet"):
        (tmp_path / name).write_bytes((curated.path / name).read_bytes())
    digests = []
    for entry in (curated, Entry("curate", "l", tmp_path, "f" * 64, 0.0, curated.result)):
        run = make_run(tracked=True, seed=len(digests))
        log_datasets(run, traces, entry)
        digests.append({name: item.dataset.digest for name, item in logged(run)[0].items()})
    assert {name for name in digests[0] if digests[0][name] != digests[1][name]} == {"curated tasks", "held-out tasks"}


def test_the_quality_report_is_an_artifact_and_a_resumed_run_adds_nothing(make_run, made, track):
    traces, curated = made
    run = make_run(tracked=True)
    log_datasets(run, traces, curated)
    client, run_id = run.tracking.client, run.tracking.mlflow_run_id
    logged_files = {item.path for item in client.list_artifacts(run_id, "data")}
    assert logged_files == {"data/quality.json", "data/splits.parquet"}
    stored = Path(urlparse(client.get_run(run_id).info.artifact_uri).path) / "data/quality.json"
    assert stored.read_bytes() == (curated.path / "quality.json").read_bytes()
    assert "tracewheel.leaks" not in logged(run)[1]
    stored.write_text("as it was")
    resumed = track(run)
    log_datasets(resumed, traces, curated)
    assert len(logged(resumed)[0]) == 6 and stored.read_text() == "as it was"
    log_datasets(resumed, traces, replace(curated, digest="f" * 64))
    assert resumed.tracking.settle()
    assert stored.read_bytes() == (curated.path / "quality.json").read_bytes(), "a new curation replaces it"


def test_an_allowed_leak_is_tagged_on_the_mlflow_run(make_run, made):
    traces, curated = made
    said = "nothing may be on two of the sides: user u1 is in held_out and train"
    leaking = replace(curated, result=curated.result | {"leaks": {"found": True, "says": said}})
    assert (leaks_of(curated), leaks_of(leaking)) == ("", said)
    run = make_run(tracked=True)
    log_datasets(run, traces, leaking)
    assert logged(run)[1]["tracewheel.leaks"] == said
    run.tracking.tag(leaks="x" * 10_000)
    assert len(logged(run)[1]["tracewheel.leaks"]) == LONGEST_TAG


def test_an_untracked_run_logs_nothing(make_run, made):
    traces, curated = made
    assert log_datasets(make_run(), traces, curated) is None


def test_mlflow_reads_the_schema():
    from mlflow.types.schema import Schema

    columns = {"a": pyarrow.string(), "b": pyarrow.int32(), "c": pyarrow.float64(), "d": pyarrow.bool_(), "e": pyarrow.null()}
    schema = pyarrow.schema([*columns.items(), pyarrow.field("f", pyarrow.int64(), nullable=False)])
    read = Schema.from_json(json.dumps(json.loads(mlflow_schema(schema))["mlflow_colspec"]))
    assert [str(kind) for kind in read.input_types()] == [
        "DataType.string", "DataType.long", "DataType.double", "DataType.boolean", "DataType.string", "DataType.long",
    ]  # fmt: skip
    assert [column.required for column in read] == [False] * 5 + [True]
