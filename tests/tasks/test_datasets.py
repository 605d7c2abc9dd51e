"""Data in a real MLflow store: inputs with digest, figures and schema, the quality report once, and a tag for a leak."""

import json
from pathlib import Path
from urllib.parse import urlparse

import pandas
import pyarrow
import pytest

from flows.intake import take_in
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tasks.stages.curate import curate_tasks
from tasks.tracking.client import make_client
from tasks.tracking.datasets import mlflow_schema
from tasks.tracking.shown import LONGEST_TAG

LOGS = str(Path(__file__).parents[2] / "data/traces/workspace.jsonl")
FEW = {"train_tasks": 10, "validation_tasks": 2, "held_out_tasks": 2, "harder_tasks": 1}


@pytest.fixture
def logged(make_run, track):
    """Logs a run that has curated; gives it, its curation, and a function that shows what MLflow has."""
    run = begin_run(make_run(ingest={"paths": [LOGS]}, curation=FEW).config, driver=DirectDriver())
    with run.hold():
        run.record.start(lambda: {"champion": None, "splits": None})
        curated = curate_tasks(run, traces=take_in(run))
        run = track(run)

    def show():
        found = make_client(run.config.tracking.uri).get_run(run.tracking.mlflow_run)
        return {item.dataset.name: item for item in found.inputs.dataset_inputs}, found

    return run, curated, show


def change_facts(run, curated, **result):
    path = run.store.root / ".facts" / f"{curated.path.name}.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "result": {**facts["result"], **result}}))


def test_data_are_inputs_and_the_quality_report_is_an_artifact_once(logged):
    run, curated, show = logged
    inputs, found = show()
    contexts = {name: item.tags[0].value for name, item in inputs.items()}
    assert contexts == {
        "traces": "logs", "curated tasks": "curation", "train tasks": "training", "validation tasks": "validation",
        "held-out tasks": "test", "harder tasks": "test",
    }  # fmt: skip
    traces = next(run.store.root.glob("ingest-*"))
    assert json.loads(inputs["traces"].dataset.source) == {"uri": str(traces)}
    assert inputs["curated tasks"].dataset.digest == curated.digest[:36]
    profile = json.loads(inputs["traces"].dataset.profile)
    assert profile["num_rows"] == profile["kept"] == 762
    rows = {name: json.loads(item.dataset.profile)["num_rows"] for name, item in inputs.items()}
    assert rows == {
        "traces": 762, "curated tasks": 15, "train tasks": 10, "validation tasks": 2, "held-out tasks": 2, "harder tasks": 1,
    }  # fmt: skip
    columns = {item["name"]: item["type"] for item in json.loads(inputs["held-out tasks"].dataset.schema)["mlflow_colspec"]}
    assert list(columns) == list(pandas.read_parquet(curated.path / "tasks.parquet").columns)
    assert (columns["prompt"], columns["attempts"], columns["pass_rate"]) == ("string", "long", "double")

    client = make_client(run.config.tracking.uri)
    assert {item.path for item in client.list_artifacts(found.info.run_id, "data")} == {
        "data/quality.json",
        "data/splits.parquet",
    }
    stored = Path(urlparse(found.info.artifact_uri).path) / "data/quality.json"
    assert stored.read_bytes() == (curated.path / "quality.json").read_bytes()
    assert "tracewheel.leaks" not in found.data.tags and found.data.tags["tracewheel.data"] == curated.digest
    stored.write_text("as it was")
    run.tracking.log()
    assert len(show()[0]) == 6 and stored.read_text() == "as it was", "a resumed run adds nothing"


def test_an_allowed_leak_is_tagged_on_the_mlflow_run(logged):
    run, curated, show = logged
    for said in ("nothing may be on two of the sides: user u1 is in held_out and train", "x" * 10_000):
        change_facts(run, curated, leaks={"found": True, "says": said})
        run.tracking.log()
        assert show()[1].data.tags["tracewheel.leaks"] == said[:LONGEST_TAG]


def test_mlflow_reads_the_schema():
    from mlflow.types.schema import Schema

    columns = {"a": pyarrow.string(), "b": pyarrow.int32(), "c": pyarrow.float64(), "d": pyarrow.bool_(), "e": pyarrow.null()}
    schema = pyarrow.schema([*columns.items(), pyarrow.field("f", pyarrow.int64(), nullable=False)])
    read = Schema.from_json(json.dumps(json.loads(mlflow_schema(schema))["mlflow_colspec"]))
    assert [str(kind) for kind in read.input_types()] == [
        "DataType.string", "DataType.long", "DataType.double", "DataType.boolean", "DataType.string", "DataType.long",
    ]  # fmt: skip
    assert [column.required for column in read] == [False] * 5 + [True]
