"""Held batches and unread logs are found in what a run took in."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tracewheel.operations.batch_profile import BatchProfile
from tracewheel.operations.batches import HELD, RELEASED, Batches, LogPart
from tracewheel.operations.intake_record import INTAKE_FILE, intake_of, read_intake, sentences
from tracewheel.operations.screening import Suspicion
from tracewheel.report.doctor import RunRecords
from tracewheel.report.doctor.checks.intake import held_batches, unread_logs

NOW = datetime(2026, 11, 23, tzinfo=UTC)
WHY = Suspicion("judge", "held", "2 of 70 traces hold instructions to the trainer or judge (3%)")
REPORT = {"read": 801, "kept": 630, "duplicates": 8, "quarantined": 163, "by_reason": {"unknown format": 163}}


@pytest.fixture
def folder(tmp_path):
    """A work folder with a held batch, and the folder of a run that left it out."""
    batches = Batches(tmp_path)
    part = LogPart("log.jsonl", 1, 71, "a" * 64)
    decision = {"state": HELD, "why": "judge", "when": NOW.isoformat(), "run": "r"}
    batches.add([part], BatchProfile(read=70, kept=70), [WHY], decision)
    run = tmp_path / "0123"
    run.mkdir()
    (run / INTAKE_FILE).write_text(json.dumps(intake_of(REPORT, {"unknown format": "new.jsonl:1"}, batches)))
    return tmp_path


def records(config, folder):
    return replace(RunRecords(config), intake=read_intake(folder / "0123", folder))


def test_a_held_batch_is_severe_until_a_person_has_decided(config, folder):
    finding = held_batches(records(config, folder))
    assert finding.severity == "severe"
    assert finding.evidence["why"] == [WHY.sentence]
    assert "tracewheel batches" in finding.advice
    name = Batches(folder).all()[0].id
    Batches(folder).decide(name, HELD, "stays out", NOW)
    assert held_batches(records(config, folder)).severity == "healthy"
    Batches(folder).decide(name, RELEASED, "fine after all", NOW)
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
