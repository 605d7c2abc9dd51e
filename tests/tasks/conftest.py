"""Shared by the task tests: a profile, a run of it in a fresh folder, one MLflow store."""

import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from tasks.engine.reading import begin_run
from tasks.tracking.client import make_client
from tasks.tracking.tracking import Tracking
from tracewheel.config import RetrainConfig
from tracewheel.core.files import write_json
from tracewheel.policy.adapters import ADAPTER_INFO, base_hash


@pytest.fixture(scope="session")
def tracking_uri(tmp_path_factory):
    """A sqlite store. Making one takes seconds, so the tests share it under names of their own."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def copy_store(tracking_uri):
    """Copies the shared store to a path, as it is at one moment: a copy of the file alone could be torn by a writer."""

    def copy(path):
        make_client(tracking_uri)  # makes it, should this test be the first
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(tracking_uri.removeprefix("sqlite:///"))) as store, closing(sqlite3.connect(path)) as out:
            store.backup(out)
        return path

    return copy


@pytest.fixture
def track():
    """Opens a run's tracking."""

    def start(run, say=None):
        return replace(run, tracking=Tracking.open(run.config, run.record, say))

    return start


@pytest.fixture
def make_run(base, tracking_uri, tmp_path, request, track):
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
        return track(run) if tracked else run

    return make


def write_small_adapter(folder, value):
    """Weights and config of an adapter of rank 1 on the first layer's output projection."""
    layer = "base_model.model.model.layers.0.self_attn.o_proj"
    weights = {f"{layer}.lora_A.weight": torch.full((1, 128), value), f"{layer}.lora_B.weight": torch.ones(128, 1)}
    save_file(weights, folder / "adapter_model.safetensors")
    form = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["layers.0.self_attn.o_proj"]}
    write_json(folder / "adapter_config.json", form)


@pytest.fixture
def adapter(base, tmp_path):
    """Makes small adapters for the base, other numbers under each name."""

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        write_small_adapter(folder, float(zlib.crc32(name.encode())))
        write_json(folder / ADAPTER_INFO, {"base_hash": base_hash(base), "version": 7})
        return folder

    return make
