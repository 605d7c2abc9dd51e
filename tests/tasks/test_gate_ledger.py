"""The sequence of gates of a work folder."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tasks.records.gate_ledger import change, end, note, note_verdict, read_ledger, waiting_candidate
from tracewheel.config import GateConfig
from tracewheel.core.errors import DataError
from tracewheel.evaluation.error_budget import Look, budget, level_of

CONFIG = GateConfig()
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def gate(number):
    return {"evidence": f"challenger-{number}-champion", "run": f"run{number}", "baseline": "champion"}


def test_the_same_evidence_is_the_same_gate(tmp_path):
    """A run that is resumed or repeated gets its place and its level again, and spends nothing."""
    first = note(str(tmp_path), CONFIG, gate(1), BEGAN)
    second = note(str(tmp_path), CONFIG, gate(2), BEGAN + timedelta(days=1))
    written = (tmp_path / "gates.json").read_bytes()
    assert first == Look(1, 0.0) and second == Look(2, level_of(CONFIG, first))
    later = BEGAN + timedelta(days=30)
    assert note(str(tmp_path), CONFIG, gate(1), later) == first
    assert note(str(tmp_path), CONFIG, gate(2) | {"run": "again"}, later) == second
    assert (tmp_path / "gates.json").read_bytes() == written


def test_another_confidence_on_the_same_evidence_spends_what_it_uses(tmp_path):
    note(str(tmp_path), CONFIG, gate(1), BEGAN)
    note(str(tmp_path), GateConfig(confidence=0.8), gate(1), BEGAN)
    (only,) = read_ledger(str(tmp_path))
    assert only["level"] == level_of(GateConfig(confidence=0.8), Look())


@pytest.mark.parametrize("hours", [24, 6])
def test_any_year_of_gates_stays_within_the_budget(tmp_path, hours):
    """One gate a night keeps its level through two years; four a day cannot overspend."""
    config, levels, times = GateConfig(gates_per_year=40), [], []
    for number in range(130):
        now = BEGAN + timedelta(hours=number * hours * 365 / 40)
        look = note(str(tmp_path), config, gate(number), now)
        levels.append(level_of(config, look))
        times.append(now)
        year = [level for level, time in zip(levels, times, strict=True) if time > now - timedelta(days=365)]
        assert sum(year) <= budget(config) * (1 + 1e-9)
    if hours == 24:
        even = 0.75 * budget(config) / 40
        assert min(levels) >= even / 2.001 and sorted(levels)[5] == pytest.approx(even)
        assert levels[0] > 5 * even


def test_a_damaged_ledger_is_an_error_that_says_what_to_do(tmp_path):
    for text in ("{}", '[{"evidence": "a"}]', json.dumps([{**gate(1), "began": "yesterday", "level": 0.1}])):
        (tmp_path / "gates.json").write_text(text)
        with pytest.raises(DataError, match=r"gates.json: not a list of gates .* put back a copy"):
            note(str(tmp_path), CONFIG, gate(2), BEGAN)


def test_a_plan_that_is_raised_restores_the_right_to_ask(tmp_path):
    """A refused gate counts at the level that the new plan gives it; a promoted one keeps what it spent."""
    once, weekly, later = GateConfig(gates_per_year=1), GateConfig(gates_per_year=52), BEGAN + timedelta(days=1)
    assert level_of(once, note(str(tmp_path), once, gate(1), BEGAN)) == budget(once)
    assert level_of(once, note(str(tmp_path), once, gate(2), later)) == 0.0
    note_verdict(str(tmp_path), gate(1)["evidence"], "refused")
    assert level_of(weekly, note(str(tmp_path), weekly, gate(3), later)) > 0.1 * level_of(weekly, Look())
    note_verdict(str(tmp_path), gate(1)["evidence"], "promoted")
    assert level_of(weekly, note(str(tmp_path), weekly, gate(4), later)) == 0.0


def confirmation(number):
    own = {"weights": "update-a", "against": "", "digest": "a", "champion": "", "planned": 9, "screens": [], "nights": []}
    return {**gate(number), "evidence": f"candidate-{number}-none", "candidate": own}


def test_looks_and_confirmations_of_any_year_stay_within_the_budget(tmp_path):
    """A look each day for two years, and a confirmation each third day, four times as many as are planned."""
    config, taken = GateConfig(gates_per_year=40), []
    for number in range(80):
        now = BEGAN + timedelta(days=number * 365 / 40)
        for kind, line in (("night", gate(number)), ("confirmation", confirmation(number) if number % 3 == 0 else None)):
            if line:
                look = note(str(tmp_path), config, line, now, Look(kind=kind))
                taken.append((now, level_of(config, look)))
        assert sum(level for time, level in taken if time > now - timedelta(days=365)) <= budget(config) * (1 + 1e-9)
    lines = read_ledger(str(tmp_path))
    assert sum("candidate" in line for line in lines) == 27
    assert [line.get("verdict") for line in lines if "candidate" in line] == ["replaced"] * 26 + [None]


def test_kinds_have_their_own_numbers_and_the_same_confirmation_spends_nothing(tmp_path):
    for number in (1, 2):
        note(str(tmp_path), CONFIG, gate(number), BEGAN, Look(kind="night"))
    first = note(str(tmp_path), CONFIG, confirmation(1), BEGAN, Look(kind="confirmation"))
    assert first.number == 1 and note(str(tmp_path), CONFIG, gate(3), BEGAN, Look(kind="night")).number == 3
    written = (tmp_path / "gates.json").read_bytes()
    assert note(str(tmp_path), CONFIG, confirmation(1), BEGAN + timedelta(days=9), Look(kind="confirmation")) == first
    assert (tmp_path / "gates.json").read_bytes() == written


@pytest.mark.parametrize(
    ("damage", "flaw"),
    [
        ({"planned": "many"}, "candidate: planned"),
        ({"screens": None}, "candidate: screens"),
        ({"nights": [{"run": "a", "evaluations": []}]}, "candidate: nights: spent"),
        ({"nights": ["a"]}, "candidate: nights: the whole"),
    ],
)
def test_a_damaged_candidate_is_named_with_its_field_and_what_to_do(tmp_path, damage, flaw):
    line = {**confirmation(1), "began": BEGAN.isoformat(), "level": 0.001}
    whole = [{**gate(0), "began": BEGAN.isoformat(), "level": 0.001}, line]
    (tmp_path / "gates.json").write_text(json.dumps(whole))
    assert waiting_candidate(str(tmp_path)) == line
    line["candidate"] |= damage
    (tmp_path / "gates.json").write_text(json.dumps(whole))
    with pytest.raises(DataError, match=rf"gates.json: .*: {flaw} of gate 2 is wrong; put back a copy of it, or delete it"):
        waiting_candidate(str(tmp_path))


def test_only_a_candidate_that_waits_can_end(tmp_path):
    """A run that is repeated later does not overwrite what became of its candidate."""
    note(str(tmp_path), CONFIG, confirmation(1), BEGAN, Look(kind="confirmation"))
    evidence = confirmation(1)["evidence"]
    change(str(tmp_path), evidence, lambda line: line | {"verdict": "promoted"})
    end(str(tmp_path), evidence, "gone")
    assert read_ledger(str(tmp_path))[0]["verdict"] == "promoted"
    change(str(tmp_path), evidence, lambda line: line | {"verdict": "waiting"})
    end(str(tmp_path), evidence, "gone")
    (line,) = read_ledger(str(tmp_path))
    assert (line["verdict"], line["why"]) == ("ended", "gone") and line["level"] > 0.0
    assert waiting_candidate(str(tmp_path)) is None
