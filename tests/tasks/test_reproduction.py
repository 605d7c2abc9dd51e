"""The work folder of a run that is made again holds what the run began with, and nothing else."""

import json
from datetime import UTC, datetime

import pytest
import yaml

from tasks.afterwards.reproduction import bring_logs, prepare
from tracewheel.config import load_config
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import PACKAGE, digest_of
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Store, remove
from tracewheel.report.finished_run import FinishedRun
from tracewheel.traces.forgotten import Forgotten
from tracewheel.traces.snapshot import take_snapshot

SNAPSHOT = {"settings": "s", "files": [], "skipped": [], "unfinished": {}, "earlier": None, "forgotten": ["f" * 64]}
PROFILE = {
    "work_dir": "runs",
    "tracking": {"uri": "http://mlflow.example", "model_name": "m"},
    "ingest": {"paths": ["logs"]},
    "screening": {"hold": True},
    "threads": 1,
}


def gate(run, level, day):
    return {
        "evidence": f"{run}-{run}",
        "run": run,
        "baseline": "base",
        "began": f"2026-11-0{day}T00:00:00+00:00",
        "level": level,
    }


@pytest.fixture
def began(tmp_path):
    """A run that began with a champion, an earlier curation, its record of splits, and a gate before its own."""
    work = tmp_path / "work"
    record = work / "second"
    record.mkdir(parents=True)
    weights = work / "champion" / "adapter"
    weights.mkdir(parents=True)
    (weights / "adapter_model.safetensors").write_bytes(b"weights")
    digest = digest_of(weights)
    weights.parent.rename(work / "held")
    (work / "champion").mkdir()
    (work / "held").rename(work / "champion" / digest[:16])
    earlier = Store(work / "store").make("curate", "c" * 16, lambda out: (out / "tasks.parquet").write_bytes(b"tasks"))
    (work / "first").mkdir()
    (work / "first" / "splits.parquet").write_bytes(b"splits")
    lost = {"curated": f"curate-{'9' * 16}", "digest": "d", "run": "first"}
    start = {"champion": {"version": "3", "run_id": "first", "digest": digest}, "evidence": earlier.path.name, "splits": lost}
    lineage = {"started": "2026-11-02", "git": None, "inputs": {}, "packages": {}}
    files = {"start.json": start, "snapshot.json": SNAPSHOT, "lineage.json": lineage, "gate.json": {"look": 2}}
    for name, value in files.items():
        (record / name).write_text(json.dumps(value))
    (record / "config.yaml").write_text(yaml.safe_dump(PROFILE))
    (record / "entries.txt").write_text("ingest-1\n")
    (work / "gates.json").write_text(json.dumps([gate("first", 0.01, 1), gate("second", 0.005, 2), gate("third", 0.001, 3)]))
    return FinishedRun(RunRecord(work, "second"))


def test_a_run_begins_with_its_parents_and_a_place_of_its_own(began, tmp_path):
    says = prepare(began, tmp_path / "out", ["/logs/a"])
    work = tmp_path / "out" / "work"
    profile = yaml.safe_load((tmp_path / "out" / "profile.yaml").read_text())
    assert profile["tracking"] == {"uri": f"sqlite:///{work}/mlflow.db", "model_name": "m"}
    assert (profile["work_dir"], profile["ingest"]["paths"], profile["screening"]["hold"]) == (str(work), ["/logs/a"], False)
    digest = read_json(began.record.path / "start.json")["champion"]["digest"]
    assert digest_of(work / "champion" / digest[:16] / "adapter") == digest
    assert Store(work / "store").find("curate", "c" * 16)
    assert (work / "first" / "splits.parquet").read_bytes() == b"splits"
    gates = read_json(work / "gates.json")
    assert [gate["run"] for gate in gates] == ["first"]
    days = datetime.now(UTC) - datetime.fromisoformat(gates[0]["began"])
    assert days.total_seconds() == pytest.approx(86400, abs=60), "it was a day before the run's own gate"
    assert read_json(work / "forgotten.json")["hashes"] == ["f" * 64]
    assert "1 entries" in says[0]
    assert {path.name for path in (work / "second").iterdir()} == {"config.yaml", "lineage.json", "snapshot.json", "start.json"}
    assert not (work / "second" / "summary.json").exists(), "so that retrain makes it"


def test_a_run_begins_with_its_candidate_as_it_was_or_without_one_that_had_ended(began, tmp_path):
    """What later nights made of it is not there; of one that the run went on without, nothing is needed."""
    names = ("update", "evaluate", "evaluate-two", "evaluate-three")
    keys = {name: Store(began.store).make(name.split("-")[0], f"{name[-1]}" * 16, lambda out: None).path.name for name in names}
    nights = [{"run": run, "evaluations": [keys["evaluate-two"]], "spent": 0.001} for run in ("first", "second", "third")]
    own = {"weights": keys["update"], "against": "", "digest": "d", "champion": "", "planned": 9, "nights": nights}
    own["screens"] = [keys["evaluate"]]
    line = gate("first", 0.01, 1) | {"evidence": "candidate-d-none", "verdict": "promoted", "why": "proven", "candidate": own}
    start = read_json(began.record.path / "start.json")
    (began.record.path / "start.json").write_text(json.dumps(start | {"candidate": "candidate-d-none"}))
    gates = read_json(began.work_dir / "gates.json")
    (began.work_dir / "gates.json").write_text(json.dumps([*gates, line]))
    prepare(began, tmp_path / "out", [])
    copy = read_json(tmp_path / "out" / "work" / "gates.json")[-1]
    assert "verdict" not in copy and [night["run"] for night in copy["candidate"]["nights"]] == ["first"]
    assert Store(tmp_path / "out" / "work" / "store").find(*keys["update"].split("-"))

    own["nights"], line["verdict"] = nights[:1], "ended"
    (began.work_dir / "gates.json").write_text(json.dumps([*gates, line]))
    remove(began.store / keys["update"])
    prepare(began, tmp_path / "again", [])
    assert read_json(tmp_path / "again" / "work" / "gates.json")[-1]["verdict"] == "ended"


def test_a_lost_parent_is_refused(began, tmp_path):
    remove(began.store / f"curate-{'c' * 16}")
    with pytest.raises(DataError, match=r"pass rates the run resumed: it is no longer in the store"):
        prepare(began, tmp_path / "out", [])
    remove(began.work_dir / "champion")
    with pytest.raises(DataError, match=r"no weights with digest .* .version 3. that the run began with"):
        prepare(began, tmp_path / "again", [])


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """A run that has read a log, and the log."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "logs" / "app.jsonl"
    log.parent.mkdir()
    log.write_text('{"messages": []}\n' * 3)
    (tmp_path / "work" / "run").mkdir(parents=True)
    run = FinishedRun(RunRecord(tmp_path / "work", "run"))
    config = load_config(PACKAGE.parent / "configs" / "tiny-short.yaml", ["ingest.paths=[logs/app.jsonl]"])
    (run.record.path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    snapshot = take_snapshot(config.ingest)
    (run.record.path / "snapshot.json").write_text(json.dumps({"settings": "s", **snapshot.to_record()}))
    return run, log


def test_logs_are_found_by_their_bytes_also_when_they_have_grown_or_moved(logged, tmp_path):
    run, log = logged
    (clone := tmp_path / "clone").mkdir()
    log.write_text(log.read_text() + '{"messages": [1]}\n')
    paths, says = bring_logs(run, clone, [])
    assert paths == [str(log)]
    assert "ones that lie here" in says[0]
    (away := tmp_path / "away").mkdir()
    log.rename(away / "renamed.jsonl")
    assert bring_logs(run, clone, [str(away)])[0] == [str(away)]


def test_changed_or_lost_logs_are_refused(logged, tmp_path):
    run, log = logged
    log.write_text('{"messages": [2]}\n' * 3)
    with pytest.raises(DataError, match=r"app.jsonl: no log holds the bytes 0 to 51 .*--logs DIR"):
        bring_logs(run, tmp_path, [])
    log.unlink()
    with pytest.raises(DataError, match="no log holds the bytes"):
        bring_logs(run, tmp_path, [])


def test_who_was_forgotten_since_is_not_read_again(logged, tmp_path):
    run, _ = logged
    Forgotten(frozenset({"a" * 64})).write(run.work_dir)
    with pytest.raises(DataError, match="somebody was forgotten since"):
        bring_logs(run, tmp_path, [])
