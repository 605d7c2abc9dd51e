"""Shared by the task tests: a profile, a run of it in a fresh folder, one MLflow store."""

from dataclasses import replace

import pytest

from tasks.reading import begin_run
from tasks.tracking import Tracking
from tracewheel.config import RetrainConfig
from tracewheel.core.files import write_json
from tracewheel.policy.adapters import ADAPTER_INFO, base_hash


@pytest.fixture(scope="session")
def tracking_uri(tmp_path_factory):
    """A sqlite store. Making one takes seconds, so the tests share it under names of their own."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def make_run(base, tracking_uri, tmp_path, request):
    """Makes runs with names of their own in the shared MLflow store."""
    traces = tmp_path / "traces.jsonl"
    traces.write_text('{"messages": []}\n')

    def make(*, tracked=False, **changes):
        name = request.node.name.replace("[", "-").replace("]", "")
        values = {
            "name": "test",
            "threads": 1,
            "work_dir": str(tmp_path / "runs"),
            "policy": {"base": base},
            "environment": {"kind": "workspace"},
            "ingest": {"paths": [str(traces)]},
            "tracking": {"uri": tracking_uri, "experiment": name, "model_name": name},
            **changes,
        }
        run = begin_run(RetrainConfig.model_validate(values))
        return replace(run, tracking=Tracking.open(run.config, run.record)) if tracked else run

    return make


@pytest.fixture
def adapter(base, tmp_path):
    """Makes folders that look like adapters for the base."""

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_bytes(name.encode())
        write_json(folder / ADAPTER_INFO, {"base_hash": base_hash(base), "version": 7})
        return folder

    return make
