"""A screen of a wheel looks at what a start finds new; what it holds is left out of every run, with the wheel or without it."""

import json
from pathlib import Path

import pytest

from flows.screening import screened
from tasks.engine.drivers import DirectDriver
from tasks.engine.inputs import identity_of
from tasks.engine.reading import begin_run
from tracewheel.config import load_config, load_stored_config
from tracewheel.config.base import Strict
from tracewheel.config.wheel_sections import SCREENS
from tracewheel.core.errors import ConfigError, DataError, DoubtfulData


class Settings(Strict):
    hold: bool = True


class HoldsSecrets:
    """Holds each new slice that speaks of a secret."""

    Settings = Settings

    def screen(self, run, now):
        folder = run.record.path.parent / "batches"
        folder.mkdir(parents=True, exist_ok=True)
        ledger = json.loads((folder / "ledger.json").read_text()) if (folder / "ledger.json").is_file() else []
        said, (path,) = [], run.config.ingest.paths
        for log in run.snapshot.files:
            for part in log.slices:
                name = part.sha256[:12]
                if (folder / f"{name}.json").is_file():
                    continue
                with open(f"{path}/{log.name}", "rb") as file:
                    file.seek(part.begin)
                    state = "held" if b"secret" in file.read(part.end - part.begin) else "accepted"
                found = (
                    [{"check": "secrets", "severity": "held", "sentence": "it speaks of a secret"}] if state == "held" else []
                )
                own = {"file": log.name, "line": part.line, "next_line": part.next_line, "sha256": part.sha256}
                counts = {"read": 2, "kept": 2, "duplicates": 0, "quarantined": 0}
                (folder / f"{name}.json").write_text(json.dumps({"parts": [own], "profile": counts, "checks": found}))
                ledger.append({"batch": name, "state": state, "when": now.isoformat(), "who": "screening", "why": "looked"})
                said.append(f"batch {name} is {state}")
        (folder / "ledger.json").write_text(json.dumps(ledger))
        (folder / "snapshot.json").write_text(json.dumps(run.snapshot.to_record()))
        return said


@pytest.fixture
def wheel(monkeypatch):
    """The only screen of this process; returns what removes it."""
    monkeypatch.setitem(vars(SCREENS), "wheels", {})
    monkeypatch.setitem(SCREENS._set, "keeper", HoldsSecrets)
    return lambda: monkeypatch.delitem(SCREENS._set, "keeper")


@pytest.fixture
def config(make_run, tmp_path):
    (tmp_path / "logs").mkdir()
    config = make_run().config
    return config.model_copy(update={"ingest": config.ingest.model_copy(update={"paths": (str(tmp_path / "logs"),)})})


def append(config, *texts):
    with open(f"{config.ingest.paths[0]}/log.jsonl", "a") as file:
        for text in texts:
            messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Well."}]
            file.write(json.dumps({"id": text, "messages": messages}) + "\n")


def start(config, **more):
    return screened(begin_run(config, driver=DirectDriver()), **more)


def lines_of(run):
    return [part.line for log in run.snapshot.files for part in log.slices]


def test_what_is_held_is_left_out_with_the_wheel_or_without_it(config, wheel, monkeypatch):
    told = []
    monkeypatch.setattr("flows.screening.tell_held", lambda config, message: told.append(message))
    append(config, "one", "two")
    first = start(config)
    append(config, "a secret", "another secret")
    second = start(config, tell=True)
    assert second.record.run_id == first.record.run_id and lines_of(second) == [1], "as if the night had not been"
    assert len(told) == 1 and "is held" in told[0]
    append(config, "five", "six")
    assert lines_of(start(config, tell=True)) == [1, 5] and len(told) == 1
    wheel()
    append(config, "seven")
    assert 3 not in lines_of(start(config))


def test_a_run_that_can_read_nothing_else_ends_with_what_is_held_and_why(config, wheel):
    append(config, "a secret")
    with pytest.raises(
        DoubtfulData, match=r"is held \(1 batches\).*--release ID(?s:.)*2 records of log.jsonl:1.*speaks of a secret"
    ):
        start(config)
    wheel()
    with pytest.raises(DoubtfulData, match="all that there is to learn from is held"):
        start(config)


def test_a_damaged_batch_is_named_with_the_way_out(config, wheel):
    append(config, "a secret", "two")
    with pytest.raises(DoubtfulData):
        start(config)
    (file,) = (path for path in Path(config.work_dir).glob("batches/*.json") if len(path.stem) == 12)
    file.write_text(json.dumps({"parts": []}))
    with pytest.raises(DataError, match=f"{file.name}: not the record of a batch"):
        start(config)


def test_a_run_that_is_made_again_reads_what_it_read(config, wheel):
    append(config, "a secret")
    run = begin_run(config, driver=DirectDriver())
    with run.hold():
        pass
    run.record.write("lineage.json", {**run.record.lineage, "made_again": "2026-11-23"})
    assert lines_of(start(config)) == [1]


def test_a_section_of_a_screen_is_no_stage_and_makes_no_other_run(wheel, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("name: p\n")
    plain, strict = load_config(path), load_config(path, ["keeper.hold=false"])
    assert strict.keeper == Settings(hold=False) and strict.wheel_sections == ()
    assert identity_of(plain) == identity_of(strict)
    with pytest.raises(ConfigError, match=r"section screening is not installed: pip install tracewheel-screening"):
        load_config(path, ["screening.hold=false"])
    path.write_text("name: p\nscreening: {hold: false}\n")
    assert load_stored_config(tmp_path).wheel_sections == (), "the run of an earlier version, or of another house"
