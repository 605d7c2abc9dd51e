"""The record of a run: a fixed starting point and complete files."""

import json

from tracewheel.core.run_record import RunRecord, find_runs
from tracewheel.core.store import PARTIAL


def test_the_starting_point_is_looked_up_once(tmp_path):
    record = RunRecord(tmp_path, "r1")
    assert record.started() is None
    assert record.start(lambda: {"champion": None}) == {"champion": None}
    assert record.start(lambda: {"champion": "another by now"}) == {"champion": None}
    assert record.started() == {"champion": None}


def test_opening_keeps_existing_files_and_deletes_partial_ones(tmp_path):
    record = RunRecord(tmp_path / "runs", "r1")
    record.open({"name": "x"}, {"base": "b"})
    lineage = (record.path / "lineage.json").read_text()
    (record.path / f"{PARTIAL}report.html").write_text("half")
    (record.path / f"{PARTIAL}adapter-1").mkdir()
    record.open({"name": "x"}, {"base": "other"})
    assert (record.path / "lineage.json").read_text() == lineage
    assert sorted(path.name for path in record.path.iterdir()) == ["config.yaml", "lineage.json"]
    assert set(json.loads(lineage)) == {"started", "git", "inputs", "packages"}
    assert json.loads(lineage)["packages"].keys() >= {"torch", "prefect", "detect-secrets", "phonenumbers", "rensa"}
    assert record.summary is None


def test_a_run_with_a_summary_is_complete_and_is_found(tmp_path):
    for name in ("r1", "r2"):
        RunRecord(tmp_path, name).open({"name": "x"}, {})
    RunRecord(tmp_path, "r1").write("summary.json", {"run_id": "r1"})
    assert {record.run_id: record.summary for record in find_runs(tmp_path)} == {"r1": {"run_id": "r1"}, "r2": None}
