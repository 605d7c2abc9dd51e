"""A run's data in MLflow: dataset inputs, and the report on their quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.engine.run import Run
from tasks.tracking.tracking import DataInput
from tracewheel.core.files import read_table
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import QUALITY_FILE, SPLITS_FILE, TASKS_FILE
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    import pyarrow

CONTEXTS = {"train": "training", "validation": "validation", "held_out": "test", "harder": "test"}
QUALITY_FOLDER = "data"


def log_datasets(run: Run, traces: Entry, curated: Entry) -> None:
    """Log the ingested traces, the curated tasks and each split of them, with digests; and the quality report, once.

    What the curation did to the splits is said, and logged with the record of splits.

    A split's digest is that of its tasks alone: runs with the same digest are measured on the same tasks. Leaks that
    `curation.allow_leak` lets through are in the MLflow run's tag `tracewheel.leaks`.
    """
    tracking = run.tracking
    if tracking is None:
        return
    ledger = curated.result["split_ledger"]
    run.reporter.say(ledger["says"])
    inputs = [
        _input("traces", "logs", traces, traces.path / TRACES_FOLDER, traces.result),
        _input("curated tasks", "curation", curated, curated.path / TASKS_FILE, curated.result["splits"]),
    ]
    tracking.log_inputs([*inputs, *_splits(curated, inputs[1].schema)])
    once = {"data": curated.digest}
    tracking.log_files([curated.path / name for name in (QUALITY_FILE, SPLITS_FILE)], QUALITY_FOLDER, once)
    tracking.log_results(ledger_metrics(ledger), once)
    if leaks := leaks_of(curated):
        tracking.tag(leaks=leaks)
    tracking.tag(data=curated.digest)


def ledger_metrics(ledger: dict[str, Any]) -> dict[str, float | None]:
    """The counts of a ledger of splits under MLflow's names."""
    counts = {name: value for name, value in ledger.items() if isinstance(value, int) and not isinstance(value, bool)}
    sides = {f"side_{side}": count for side, count in ledger["sides"].items()}
    still = {f"first_held_out_{name}": count for name, count in ledger["first_held_out"].items()}
    return {f"splits/{name}": float(value) for name, value in (counts | sides | still).items()}


def leaks_of(curated: Entry) -> str:
    """The leaks between splits, in a sentence, or ""."""
    leaks = curated.result["leaks"]
    return str(leaks["says"]) if leaks["found"] else ""


def _input(name: str, context: str, entry: Entry, table: Path, figures: dict[str, Any]) -> DataInput:
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(table, format="parquet")
    profile = {"num_rows": found.count_rows(), **figures}
    return DataInput(name, context, entry.digest, entry.path, profile, mlflow_schema(found.schema))


def _splits(curated: Entry, schema: str) -> list[DataInput]:
    tasks = read_table(curated.path / TASKS_FILE)
    inputs = []
    for split, context in CONTEXTS.items():
        ids = sorted(tasks.loc[tasks["split"] == split, "id"])
        profile = {"num_rows": len(ids), **curated.result["splits"][split], "deployed": curated.result["deployed"][split]}
        name = f"{split.replace('_', '-')} tasks"
        inputs.append(DataInput(name, context, content_hash(ids, 64), curated.path / TASKS_FILE, profile, schema))
    return inputs


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
