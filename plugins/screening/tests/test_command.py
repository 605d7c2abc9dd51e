"""`tracewheel batches`: what it lists and decides, and how it looks on a narrow terminal."""

import argparse
import json
import re

import pytest

from flows.cli import main
from flows.console.look import show_card
from tracewheel.operations.batches import LogPart
from tracewheel_screening.batch_profile import BatchProfile
from tracewheel_screening.batches import Batches
from tracewheel_screening.checks import Suspicion
from tracewheel_screening.commands.batches import COMMAND

WHERE = {"file": "day-07.jsonl", "line": 12, "says": "logged reward 0, verified 1"}


@pytest.fixture
def profile(tmp_path, base):
    """A profile whose work folder has an accepted batch and a held one."""
    batches = Batches(tmp_path / "runs")
    why = Suspicion("rewards", "held", "9 of 38 logged rewards differ from the verified outcome", 1e-9, 1e-4, [WHERE])
    for name, state, found in (("day-06.jsonl", "accepted", []), ("day-07.jsonl", "held", [why])):
        decision = {"state": state, "why": "looked", "when": "2026-11-23T03:00:00+00:00", "run": "r"}
        batches.add([LogPart(name, 1, None, name)], BatchProfile(read=1040, kept=1038, quarantined=2), found, decision)
    path = tmp_path / "my profile.yaml"
    path.write_text(f"name: p\nwork_dir: {tmp_path / 'runs'}\ntracking: {{uri: 'sqlite:///{tmp_path}/mlflow.db'}}\n")
    return path


def asked(profile, capsys, *words):
    code = main(["batches", str(profile), *words, "--json"])
    out = capsys.readouterr().out
    return json.loads(out) if code == 0 else code


def test_a_held_batch_is_shown_and_let_in(profile, capsys):
    listed = asked(profile, capsys)
    accepted, held = listed["batches"]
    assert (accepted["state"], held["state"], held["waits"], held["of"]) == ("accepted", "held", True, "day-07.jsonl")
    assert listed["totals"] == {"read": 2080, "kept": 1038, "duplicates": 0, "quarantined": 2, "held": 1040}
    shown = asked(profile, capsys, "--show", held["id"])
    assert shown["batch"]["checks"][0]["examples"] == [WHERE]
    assert shown["learnt_from_it"] == {"runs": [], "champion_version": None}
    assert asked(profile, capsys, "--release", held["id"]) == 2, "a decision needs a reason"
    assert asked(profile, capsys, "--release", held["id"], "--why", "seen")["batch"]["state"] == "released"
    assert asked(profile, capsys)["totals"]["held"] == 0


def test_the_status_of_the_work_folder_names_what_is_held(profile, capsys):
    assert main(["runs", "status", str(profile)]) == 0
    assert re.search(r"held \w{12}\s+1040 records of day-07.jsonl: 9 of 38 logged", capsys.readouterr().out)


def test_the_cards_repeat_the_profile_as_typed_and_fit_a_narrow_terminal(profile, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    options = argparse.Namespace(config="my profile.yaml", overrides=["seed=1"], run_dir=None)
    result = asked(profile, capsys)
    one = asked(profile, capsys, "--show", result["batches"][1]["id"])
    for shown, records in ((result, "2,080 read"), (one, "1,040 read")):
        show_card(COMMAND.card(options, shown))
        text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert "'my profile.yaml' --set seed=1" in text and records in text
        assert not re.search(r"[{}]|None|True|False", text)
        assert [line for line in text.splitlines() if len(line) > 60 and not line.startswith("next: ")] == []
