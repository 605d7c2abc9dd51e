"""The record of a run: identity by settings and inputs, a fixed starting point, whole files."""

import json

import pytest

from tracewheel.config import RetrainConfig
from tracewheel.errors import DataError
from tracewheel.run_record import RunRecord, find_runs, identify, input_digests
from tracewheel.store import PARTIAL


@pytest.fixture
def profile(tmp_path, base):
    (tmp_path / "traces.jsonl").write_text('{"messages": []}\n')

    def make(**changes):
        values = {"name": "x", "policy": {"base": base}, "ingest": {"paths": [str(tmp_path / "traces.jsonl")]}, **changes}
        return RetrainConfig.model_validate(values)

    return make


def run_id(config):
    return identify(config, input_digests(config))


def test_the_id_follows_settings_and_inputs_not_places(profile, tmp_path):
    first = run_id(profile())
    assert run_id(profile(name="y", work_dir="elsewhere", tracking={"uri": "sqlite:///other.db"})) == first
    assert run_id(profile(seed=1)) != first
    assert run_id(profile(learner={"kl": 0.5})) != first
    (tmp_path / "traces.jsonl").write_text('{"messages": []}\n\n')
    assert run_id(profile()) != first


def test_missing_traces_are_named(profile, tmp_path):
    (tmp_path / "traces.jsonl").unlink()
    with pytest.raises(DataError, match=r"traces.jsonl: no such trace file"):
        input_digests(profile())


def test_a_log_whose_name_tells_of_somebody_is_recorded_under_another(profile, tmp_path):
    for name in ("maria", "bob"):
        (tmp_path / f"{name}@corp.com.jsonl").write_text('{"messages": []}\n')
    config = profile(ingest={"paths": [str(tmp_path / "*.jsonl")]})
    names = sorted(name for name in input_digests(config) if name.startswith("traces/"))
    assert len(names) == 3 and names[-1] == "traces/traces.jsonl"
    assert all(name.startswith("traces/file-") for name in names[:2])
    open_names = input_digests(profile(ingest={"paths": [str(tmp_path / "*.jsonl")], "redaction": {"enabled": False}}))
    assert "traces/maria@corp.com.jsonl" in open_names


def test_the_starting_point_is_looked_up_once(tmp_path):
    record = RunRecord(tmp_path, "r1")
    assert record.started() is None
    assert record.start(lambda: {"champion": None}) == {"champion": None}
    assert record.start(lambda: {"champion": "another by now"}) == {"champion": None}
    assert record.started() == {"champion": None}


def test_opening_keeps_what_is_there_and_clears_away_halves(profile, tmp_path):
    config = profile()
    record = RunRecord(tmp_path / "runs", "r1")
    record.open(config, {"base": "b"})
    lineage = (record.path / "lineage.json").read_text()
    (record.path / f"{PARTIAL}report.html").write_text("half")
    (record.path / f"{PARTIAL}adapter-1").mkdir()
    record.open(config, {"base": "other"})
    assert (record.path / "lineage.json").read_text() == lineage
    assert sorted(path.name for path in record.path.iterdir()) == ["config.yaml", "lineage.json"]
    assert set(json.loads(lineage)) == {"started", "git", "inputs", "packages"}
    assert json.loads(lineage)["packages"].keys() >= {"torch", "prefect", "detect-secrets", "phonenumbers", "rensa"}
    assert record.summary is None


def test_a_run_with_a_summary_is_complete_and_is_found(profile, tmp_path):
    for name in ("r1", "r2"):
        RunRecord(tmp_path, name).open(profile(), {})
    RunRecord(tmp_path, "r1").write("summary.json", {"run_id": "r1"})
    assert {record.run_id: record.summary for record in find_runs(tmp_path)} == {"r1": {"run_id": "r1"}, "r2": None}
