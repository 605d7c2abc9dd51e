"""Held batches and unread logs are found in what a run took in."""

import json
from dataclasses import replace

import pytest

from tracewheel.operations.batches import held_batches as held_in
from tracewheel.operations.intake_record import INTAKE_FILE, intake_of, read_intake, sentences
from tracewheel.report.doctor import RunRecords
from tracewheel.report.doctor.checks.intake import held_batches, unread_logs

WHY = {"check": "judge", "severity": "held", "sentence": "2 of 70 traces hold instructions to the trainer or judge (3%)"}
BATCH = {
    "id": "b1",
    "parts": [{"file": "log.jsonl", "line": 1, "next_line": 71, "sha256": "a" * 64}],
    "profile": {"read": 70, "kept": 70, "duplicates": 0, "quarantined": 0},
    "checks": [WHY],
}
REPORT = {"read": 801, "kept": 630, "duplicates": 8, "quarantined": 163, "by_reason": {"unknown format": 163}}


def decide(work_dir, state, who):
    """Add a decision to the ledger."""
    ledger = work_dir / "batches" / "ledger.json"
    ledger.parent.mkdir(exist_ok=True)
    rows = json.loads(ledger.read_text()) if ledger.is_file() else []
    decision = {"batch": "b1", "state": state, "when": "2026-11-23T00:00:00+00:00", "who": who, "why": "judge"}
    ledger.write_text(json.dumps([*rows, decision]))


@pytest.fixture
def folder(tmp_path):
    """A work folder with a held batch, and the folder of a run that left it out."""
    decide(tmp_path, "held", "screening")
    (tmp_path / "batches" / "b1.json").write_text(json.dumps(BATCH))
    run = tmp_path / "0123"
    run.mkdir()
    (run / INTAKE_FILE).write_text(json.dumps(intake_of(REPORT, {"unknown format": "new.jsonl:1"}, held_in(tmp_path))))
    return tmp_path


def records(config, folder):
    return replace(RunRecords(config), intake=read_intake(folder / "0123", folder))


def test_a_held_batch_is_severe_until_a_person_has_decided(config, folder):
    finding = held_batches(records(config, folder))
    assert finding.severity == "severe"
    assert finding.evidence["why"] == [WHY["sentence"]]
    assert "tracewheel batches" in finding.advice
    decide(folder, "held", "ada")
    assert held_batches(records(config, folder)).severity == "healthy"
    decide(folder, "released", "ada")
    assert held_batches(records(config, folder)).severity == "healthy"


def test_a_fifth_of_the_records_unread_is_severe_and_named(config, folder):
    finding = unread_logs(records(config, folder))
    assert finding.severity == "severe"
    assert finding.evidence["reasons"] == ["163 unknown format"]
    assert finding.evidence["as"] == ["new.jsonl:1"]


def test_a_run_of_an_earlier_version_is_not_checked(config):
    assert held_batches(RunRecords(config)).severity == unread_logs(RunRecords(config)).severity == "not_checked"


def test_every_record_found_is_accounted_for_in_the_sentences(folder):
    intake = read_intake(folder / "0123", folder)
    assert intake["found"] == intake["kept"] + intake["duplicates"] + intake["quarantined"] + intake["held"] == 871
    held, quarantined = sentences(intake)
    assert "70 of 871 records are left out" in held
    assert "163 of 801 records (20.3%) are in quarantine: 163 unknown format (as new.jsonl:1)" in quarantined
