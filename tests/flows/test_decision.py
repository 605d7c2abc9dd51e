"""Whether a scheduled run starts: new evidence since the last complete run, and what is written down of it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from flows.commands.dry_run import make_plan
from tasks.records.decisions import DECISION_FILE, note_tick, nothing_new, weigh
from tracewheel.traces.sources import SOURCES

pytestmark = pytest.mark.usefixtures("prefect_harness")


def test_a_night_with_few_new_tasks_is_skipped_and_they_add_up(work):
    """The comparison is with the last complete run, not with the last night: tasks of skipped nights are not lost."""
    first, before = work.complete(120)
    known = set(pd.read_parquet(before.path / "tasks.parquet").query("split == 'train'")["id"])
    work.write(130)
    state = work.tick("schedule.min_new_tasks=1000")
    assert state.is_completed() and state.name == "Skipped"
    (line,) = work.journal()
    assert state.message == line["why"] and not line["starts"] and f"since run {first.record.run_id}" in state.message
    assert "(needs 1000)" in state.message
    assert not (work.folder / line["run"]).exists() and not (work.folder / "mlflow.db").exists()
    work.write(160)
    run, curated, decision = work.decide("schedule.min_new_tasks=1")
    now = set(pd.read_parquet(curated.path / "tasks.parquet").query("split == 'train'")["id"])
    assert decision.figures["evidence"].new_tasks == len(now - known) > line["evidence"]["new_tasks"] > 0
    assert decision.starts and json.loads((run.record.path / DECISION_FILE).read_text())["why"] == decision.why
    assert work.decide("schedule.min_new_tasks=1000")[2].starts, "a run that has started is resumed, not asked again"


def test_nothing_new_is_skipped_before_the_logs_are_read_and_fills_no_folder(work):
    work.complete(120)
    assert "which is complete" in nothing_new(work.run())
    work.write(125)
    work.decide("schedule.min_new_tasks=1000")
    run = work.run("schedule.min_new_tasks=1000")
    for _ in range(3):
        assert "nothing new since the decision of" in nothing_new(run)
        note_tick(run.config.work_dir)
    (line,) = work.journal()
    assert line["ticks"] == 4
    assert nothing_new(work.run("schedule.min_new_tasks=2")) is None, "another schedule is another question"
    work.write(126)
    assert nothing_new(work.run("schedule.min_new_tasks=1000")) is None


def test_a_plan_shows_what_a_scheduled_run_would_decide_and_notes_nothing(work):
    def planned(*overrides):
        return make_plan(work.run(*overrides))["schedule"]

    work.complete(120)
    assert planned() is None, "the profile has no schedule"
    high, low = ("schedule.min_new_tasks=1000",), ("schedule.min_new_tasks=1",)
    assert planned(*high)["starts"] is False and "which is complete" in planned(*high)["why"]
    work.write(140)
    assert planned(*high)["starts"] is None
    why = work.decide(*high)[2].why
    journal = work.journal()
    assert planned(*high) == {"starts": False, "why": f"nothing new since the decision of {journal[0]['at']}: {why}"}
    found = planned(*low)
    assert found["starts"] and "(needs 1)" in found["why"]
    assert work.journal() == journal and not work.run(*low).record.path.exists()


def test_a_deployment_that_waits_for_its_first_log_is_skipped_and_a_lost_log_is_an_error(work, tmp_path):
    (tmp_path / "logs").mkdir()
    state = work.tick(f"ingest.paths=[{tmp_path / 'logs'}]")
    assert (state.name, state.message) == ("Skipped", f"no logs yet in {tmp_path / 'logs'}")
    work.complete(120)
    assert work.tick(f"ingest.paths=[{tmp_path / 'logs'}]").is_failed()


def test_a_scheduled_run_fetches_from_its_sources_before_it_looks_for_logs(work, tmp_path, monkeypatch):
    class Desk:
        def __init__(self, address):
            self.file = Path(address)

        def fetch(self, cursor, folder):
            if self.file.exists() and not cursor:
                (folder / "log.jsonl").write_bytes(self.file.read_bytes())
                yield {"taken": True}

    monkeypatch.setitem(SOURCES._set, "desk", Desk)
    source = f"desk:{tmp_path / 'elsewhere.jsonl'}"
    state = work.tick(f"ingest.paths=['{source}']")
    assert (state.name, state.message) == ("Skipped", f"no logs yet in {source}")
    work.write(4)
    (tmp_path / "elsewhere.jsonl").write_bytes(work.log.read_bytes())
    work.tick(f"ingest.paths=['{source}']")
    (fetched,) = work.folder.glob("sources/*/log.jsonl")
    assert fetched.read_bytes() == work.log.read_bytes()


@pytest.mark.slow
def test_drift_starts_a_run_and_ticks_with_little_more_are_the_same_look(work):
    """Success as replayed: the first night holds solved attempts only, and then none is."""
    solved, failed = work.solved_and_failed(400)

    def write(lines):
        work.log.write_bytes(b"".join(lines))

    write([*solved[:80], *failed[:20]])
    work.complete()
    never = ("schedule.min_new_tasks=1000",)
    write([*solved[:86], *failed[:22]])
    quiet = work.decide(*never)[2]
    assert not quiet.starts and "no drift (success p = " in quiet.why and quiet.figures["drift"]["attempts"] == 8
    write([*solved[:87], *failed[:22]])
    same = work.decide(*never)[2]
    assert "at 8 new attempts, tested again at 10" in same.why
    write([*solved[:87], *failed[:60]])
    fell = work.decide(*never)[2]
    assert fell.starts and "drift: success of" in fell.why
    looks = json.loads((work.folder / "drift_looks.json").read_text())
    assert len(looks) == 2 and looks[1]["attempts"] > 40 and sum(look["level"] for look in looks) < 0.1


def test_an_old_champion_is_enough_once_anything_is_new(work):
    run, curated = work.complete(120)
    gate = {"evidence": "a-b", "run": run.record.run_id, "baseline": "base", "level": 0.001}
    (work.folder / "gates.json").write_text(json.dumps([gate | {"began": "2026-01-01T00:00:00+00:00"}]))
    start = run.record.started()
    champion, began = {"version": "1", "run_id": run.record.run_id}, datetime(2026, 1, 1, tzinfo=UTC)
    young, old = (weigh(run, curated, start | {"champion": champion}, began + timedelta(days=days)) for days in (29, 31))
    assert not young.starts and "champion 29 days old (limit 30)" in young.why
    assert old.starts and old.figures["evidence"].new_tasks == 0
    assert not weigh(run, curated, start, began + timedelta(days=31)).starts


def test_the_first_run_and_one_by_hand_are_not_asked_for_evidence(work):
    work.write(120)
    _, _, decision = work.decide()
    assert decision.starts and "first run" in decision.why
    work.complete(120)
    work.write(121)
    assert work.decide("schedule.min_new_tasks=1000", asked=False)[2].starts
    assert work.decide("schedule.min_new_tasks=1000")[2].starts, "a tick resumes what a person began"


def test_a_scheduled_run_of_the_past_reports_what_it_skips(finished, profile, run):
    folder, *_ = finished
    code, out, _ = run("retrain", profile, "--run-dir", folder, "--as-of", "2026-10-02T00:00:00Z", "--json")
    assert code == 0 and "which is complete" in json.loads(out)["skipped"]
    code, _, err = run("retrain", profile, "--run-dir", folder, "--as-of", "2026-10-02")
    assert code == 2 and "it has no zone" in err
