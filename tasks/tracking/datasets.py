"""The data of a run as MLflow's dataset inputs: the ingested traces, the curated tasks, and each split of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.tracking.shown import entry_of
from tracewheel.core.files import read_table
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.report.finished_run import FinishedRun
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    import pyarrow

CONTEXTS = {"train": "training", "validation": "validation", "held_out": "test", "harder": "test"}
LONGEST_DIGEST = 36


def inputs_of(run: FinishedRun) -> list[Any]:
    """The run's data, with digests, figures and schema.

    A split's digest is that of its tasks alone: runs with the same digest are measured on the same tasks.
    """
    import pyarrow.dataset

    curated = entry_of(run, "curate")
    assert curated is not None
    read = curated.made["arguments"]["traces"]["entry"]
    traces = next((entry for entry in run.of_stage("ingest") if entry.name == read), None)
    tasks, result = read_table(curated.path / TASKS_FILE), curated.metadata["result"]
    found = pyarrow.dataset.dataset(curated.path / TASKS_FILE, format="parquet")
    schema = mlflow_schema(found.schema)
    inputs = []
    if traces is not None:
        logs = pyarrow.dataset.dataset(traces.path / TRACES_FOLDER, format="parquet")
        profile = {"num_rows": logs.count_rows(), **traces.metadata["result"]}
        inputs.append(_input("traces", "logs", traces.digest, traces.path, profile, mlflow_schema(logs.schema)))
    profile = {"num_rows": found.count_rows(), **result["splits"]}
    inputs.append(_input("curated tasks", "curation", curated.digest, curated.path, profile, schema))
    for split, context in CONTEXTS.items():
        ids = sorted(tasks.loc[tasks["split"] == split, "id"])
        profile = {"num_rows": len(ids), **result["splits"][split], "deployed": result["deployed"][split]}
        name = f"{split.replace('_', '-')} tasks"
        inputs.append(_input(name, context, content_hash(ids, 64), curated.path / TASKS_FILE, profile, schema))
    return inputs


def _input(name: str, context: str, digest: str, source: Path, profile: Mapping[str, Any], schema: str) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = Dataset(
        name=name,
        digest=digest[:LONGEST_DIGEST],
        source_type="local",
        source=json.dumps({"uri": str(source)}),
        schema=schema,
        profile=json.dumps(profile),
    )
    return DatasetInput(dataset=data, tags=[InputTag("mlflow.data.context", context)])


def mlflow_schema(schema: pyarrow.Schema) -> str:
    """Columns and types of a Parquet file as MLflow's datasets have them."""
    from mlflow.types.schema import ColSpec, Schema

    columns = [ColSpec(_kind(field.type), field.name, required=not field.nullable) for field in schema]
    return json.dumps({"mlflow_colspec": Schema(columns).to_dict()})


def _kind(kind: pyarrow.DataType) -> str:
    """MLflow's name for a type; other types are JSON text in our files, or empty."""
    import pyarrow.types as types

    words = {"boolean": types.is_boolean, "long": types.is_integer, "double": types.is_floating}
    return next((word for word, fits in words.items() if fits(kind)), "string")
