"""The ledger of batches: decisions are only ever added, and every record is accounted for."""

import json
from datetime import UTC, datetime

import pytest

from tracewheel.core.errors import DataError
from tracewheel.operations.batches import LogPart, held_slices
from tracewheel_screening.batch_profile import BatchProfile
from tracewheel_screening.batches import HELD, RELEASED, Batches

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def decision(state):
    return {"state": state, "why": "test", "when": NOW.isoformat(), "run": "r1"}


def ledger(batches):
    return json.loads((batches.folder / "ledger.json").read_text())


@pytest.fixture
def batches(tmp_path):
    folder = Batches(tmp_path)
    for number, state in enumerate(("accepted", "held"), start=1):
        part = LogPart("log.jsonl", 1 + 10 * (number - 1), 1 + 10 * number, f"{number}" * 64)
        folder.add([part], BatchProfile(read=10, kept=7, duplicates=1, quarantined=2), [], decision(state))
    return folder


def test_no_record_is_lost_whatever_is_decided(batches):
    def total():
        counts = batches.totals()
        assert counts["read"] == counts["kept"] + counts["duplicates"] + counts["quarantined"] + counts["held"]
        return counts

    first, second = batches.all()
    assert total() == {"read": 20, "kept": 7, "duplicates": 1, "quarantined": 2, "held": 10}
    assert held_slices(batches.work_dir) == {"2" * 64}
    batches.decide(second.id, RELEASED, "it is fine", NOW)
    assert total()["held"] == 0
    assert held_slices(batches.work_dir) == frozenset()
    batches.decide(first.id, HELD, "it was not", NOW)
    assert total()["kept"] == 7
    assert held_slices(batches.work_dir) == {"1" * 64}
    assert [(row["batch"], row["state"]) for row in ledger(batches)] == [
        (first.id, "accepted"),
        (second.id, "held"),
        (second.id, "released"),
        (first.id, "held"),
    ]


def test_a_person_confirms_and_decisions_need_a_reason(batches):
    name = batches.all()[1].id
    assert batches.find(name[:6]).waits
    with pytest.raises(DataError, match="--why"):
        batches.decide(name, HELD, " ", NOW)
    assert not batches.decide(name, HELD, "seen, stays out", NOW).waits
    with pytest.raises(DataError, match="already"):
        batches.decide(name, HELD, "again", NOW)
    with pytest.raises(DataError, match="no batches begin with 'zz'"):
        batches.find("zz")


def test_the_same_slices_are_the_same_batch(batches):
    part = LogPart("log.jsonl", 11, 21, "2" * 64)
    again = batches.add([part], BatchProfile(read=10, kept=10), [], decision("accepted"))
    assert again.state == "held"
    assert len(ledger(batches)) == 2


def test_a_damaged_ledger_is_named_with_the_way_out(batches):
    path = batches.folder / "ledger.json"
    path.write_text(json.dumps([{"batch": "a"}]))
    with pytest.raises(DataError, match=r"ledger\.json: not a list of decisions"):
        held_slices(batches.work_dir)
    path.write_text("[{")
    with pytest.raises(DataError, match=r"ledger\.json: not JSON"):
        held_slices(batches.work_dir)
