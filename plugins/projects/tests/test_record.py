"""`tracewheel data record`, from the command line."""

import json
from pathlib import Path

import pandas as pd
import pytest

from flows.cli import main

LOG = Path(__file__).parents[3] / "data" / "traces" / "workspace.jsonl"


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "ingested"
    assert main(["ingest", str(LOG), "--out", str(folder)]) == 0
    return folder


def test_traces_become_an_environment(run, ingested, tmp_path):
    code, _, err = run("data", "record", ingested, "--out", tmp_path / "recorded")
    assert code == 2 and "2 tool sets" in err, "one shipped conversation is of another agent"
    code, out, _ = run("data", "record", ingested, "--tool-set", "finish", "--out", tmp_path / "recorded", "--json")
    found = json.loads(out)
    assert code == 0 and found["environment"] == f"recorded:{tmp_path}/recorded"
    assert found["shared_world"] is False, "each task of the workspace has its own files"
    assert len(pd.read_parquet(tmp_path / "recorded/calls.parquet")) == found["calls"]
    assert sum(found["outcomes"].values()) == found["traces"]
    code, _, err = run("data", "record", ingested, "--tool-set", "browser", "--out", tmp_path / "none")
    assert code == 2 and "browser" in err and not (tmp_path / "none").exists()


def test_a_recording_of_logs_without_a_success_says_what_is_missing(run, ingested, tmp_path):
    (tmp_path / "traces.parquet").mkdir()
    pd.read_parquet(ingested / "traces.parquet").assign(outcome=None).to_parquet(tmp_path / "traces.parquet" / "one.parquet")
    code, out, _ = run("data", "record", tmp_path, "--tool-set", "finish", "--out", tmp_path / "recorded")
    assert code == 0
    assert "none of its traces is a success" in out and "ingest.fields.outcome" in out
