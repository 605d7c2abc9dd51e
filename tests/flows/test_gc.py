"""`tracewheel runs gc`: what a finished, the next and an interrupted run need stays; the rest is freed, and said first."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tasks.records.housekeeping import look
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.housekeeping import bytes_in, entries_of
from tracewheel.core.run_record import ENTRIES_FILE, LINEAGE_FILE, SUMMARY_FILE, find_runs
from tracewheel.core.store import Store

OLD = "0" * 12
LONG_AGO = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def work(finished, tmp_path):
    """A copy of a finished run's work folder, with the entries and the record of a run of long ago in it."""
    folder = tmp_path / "work"
    shutil.copytree(finished[0], folder, ignore=shutil.ignore_patterns(".prefect"))
    store = Store(folder / "store")
    names = []
    for number in range(3):
        entry = store.make("update", f"old{number}", lambda out: (out / "optimizer.pt").write_bytes(b"x" * 5000) and None)
        names.append(entry.path.name)
    run = folder / finished[2]["run_id"]
    old = folder / OLD
    old.mkdir(exist_ok=True)
    (old / "adapter").mkdir()
    (old / "adapter" / "adapter_model.safetensors").write_bytes(b"y" * 3000)
    for name in (LINEAGE_FILE, SUMMARY_FILE):
        (old / name).write_text((run / name).read_text().replace(finished[2]["run_id"], old.name))
    lineage = json.loads((old / LINEAGE_FILE).read_text()) | {"started": LONG_AGO}
    (old / LINEAGE_FILE).write_text(json.dumps(lineage))
    (old / ENTRIES_FILE).write_text("\n".join(names) + "\n")
    return folder, names


def config_of(profile, folder, *overrides):
    from flows.setup import resolve_config

    return resolve_config(str(profile), list(overrides), str(folder))


def test_it_says_what_it_would_free_and_frees_just_that(work, profile, run):
    folder, names = work
    assert (
        run("runs", "gc", profile, "--run-dir", folder)[0] == 0
    )  # the first command in a copied folder gives MLflow its new place
    (folder / "store/.lock").write_text("9" * 20)  # whoever held it last; its length is no part of what the store holds
    before = bytes_in(folder)
    code, out, err = run("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert (said["freed"], bytes_in(folder)) == (False, before)
    assert said["kinds"]["update"]["entries"] == 3
    assert said["kinds"]["weights of old runs"] == {"entries": 1, "bytes": 3000}
    code, out, err = run("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--yes", "--json")
    done = json.loads(out)
    assert (done["freed"], done["bytes"], done["kinds"]) == (True, said["bytes"], said["kinds"])
    assert before - bytes_in(folder) == said["bytes"]
    assert done["kept"]["store_bytes"] == said["kept"]["store_bytes"]
    assert not set(entries_of(folder / "store")) & set(names)
    code, out, _ = run("runs", "gc", profile, "--run-dir", folder, "--keep", "1")
    assert (code, "nothing can be freed" in out) == (0, True)


def test_nothing_of_the_last_run_would_be_made_again(work, profile, run):
    folder, _ = work
    assert run("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--yes")[0] == 0
    code, out, _ = run("retrain", profile, "--run-dir", folder, "--dry-run", "--json")
    plan = json.loads(out)
    assert (code, plan["complete"], all(stage["stored"] == stage["results"] for stage in plan["stages"])) == (0, True, True)


@pytest.mark.slow
def test_what_is_kept_can_be_reported_and_judged_again(work, profile, run):
    folder, _ = work
    verdict = run("champion", "promote", profile, "--run-dir", folder, "--verdict-only", "--json")
    assert verdict[0] == 0
    run("runs", "report", profile, "--run-dir", folder, "--out", folder / "before.html")
    assert run("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--yes")[0] == 0
    assert run("champion", "promote", profile, "--run-dir", folder, "--verdict-only", "--json") == verdict
    assert run("runs", "report", profile, "--run-dir", folder, "--out", folder / "after.html")[0] == 0
    assert (folder / "after.html").read_text() == (folder / "before.html").read_text()


@pytest.mark.slow
def test_after_it_a_killed_run_goes_on_and_ends_the_same(work, profile, command, spawn, tmp_path):
    """Both runs are of another seed, so that they are not the finished one."""
    folder, _ = work
    alone = tmp_path / "alone"
    shutil.copytree(folder, alone)
    settings = ("--set", "seed=5", "--set", "comparison={warm_starts: one, policies: gate, aa: false}")
    process = spawn("retrain", profile, "--run-dir", folder, *settings, log=tmp_path / "log")
    known = {path.name for path in (folder / "store").glob("update-*")}
    while not {path.name for path in (folder / "store").glob("update-*")} - known:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.1)
    process.kill()
    process.wait()
    freed = json.loads(command("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--yes", "--json").stdout)
    assert freed["kinds"]["update"]["entries"] == 3
    ends = {}
    for place in (folder, alone):
        done = command("retrain", profile, "--run-dir", place, *settings, "--json")
        assert done.returncode in (0, 3), done.stderr
        ends[place] = json.loads(done.stdout)
    assert ends[folder]["cached"] > ends[alone]["cached"]
    assert digest_of(Path(ends[folder]["adapter"])) == digest_of(Path(ends[alone]["adapter"]))
    assert ends[folder]["gate"] == ends[alone]["gate"]


def test_an_old_run_is_kept_while_it_is_the_champions(work, profile):
    folder, names = work
    config = config_of(profile, folder)
    make_champion(config, OLD)
    kept, found = look(config, 1)
    assert kept.runs[OLD] == "champion"
    assert set(names) <= kept.entries
    assert not found.sizes.get("update")


def make_champion(config, run_id):
    """Register a version of this run and make it champion, as a promotion does."""
    from tasks.tracking.client import make_client
    from tasks.tracking.promotion import CHAMPION
    from tracewheel.policy.adapters import base_hash

    client, name = make_client(config.tracking.uri), config.tracking.model_name
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    tags = {"run_id": run_id, "base_hash": base_hash(config.policy.base), "adapter_digest": "0"}
    version = client.create_model_version(name, "file:///nowhere", tags=tags)
    client.set_registered_model_alias(name, CHAMPION, version.version)


def test_where_the_champion_cannot_be_known_every_promoted_run_is_kept(work, profile):
    folder, _ = work
    summary = json.loads((folder / OLD / SUMMARY_FILE).read_text())
    summary["gate"]["verdict"] = "promoted"
    (folder / OLD / SUMMARY_FILE).write_text(json.dumps(summary))
    kept, found = look(config_of(profile, folder, "tracking.uri=http://127.0.0.1:9"), 1)
    assert kept.runs[OLD] == "champion"
    assert "every promoted run is kept" in kept.note
    assert not found.sizes.get("update")


@pytest.mark.parametrize("name", ["splits.json", "evidence.json", "batches.json"])
def test_a_damaged_chain_is_named_and_nothing_is_freed(work, profile, run, name):
    folder, names = work
    (folder / name).write_text('{"latest": ')
    code, _, err = run("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--yes")
    assert (code, str(folder / name) in err) == (2, True)
    assert set(names) <= set(entries_of(folder / "store"))


def test_an_entry_that_a_file_of_the_work_folder_names_is_kept(work, profile):
    folder, names = work
    (folder / "batches.json").write_text(json.dumps({"held": [{"ingest": names[1]}]}))
    kept, _ = look(config_of(profile, folder), 1)
    assert set(names) & kept.entries == {names[1]}


def test_a_run_without_a_list_of_its_entries_keeps_all_that_was_there_when_it_ended(work, profile):
    """Runs of earlier versions noted none."""
    folder, names = work
    for record in find_runs(folder):
        (record.path / ENTRIES_FILE).unlink()
        if record.summary:
            later = time.time() + 1
            os.utime(record.path / SUMMARY_FILE, (later, later))
    kept, found = look(config_of(profile, folder), 1)
    assert set(names) <= kept.entries
    assert found.counts == {"weights of old runs": 1}


def test_it_waits_for_no_run_that_holds_the_store(work, profile, run):
    folder, names = work
    with Store(folder / "store").exclusive():
        code, _, err = run("runs", "gc", profile, "--run-dir", folder, "--keep", "1", "--yes")
    assert (code, "in use by another run" in err) == (1, True)
    assert set(names) <= set(entries_of(folder / "store"))


def test_keeping_no_run_is_refused(work, profile, run):
    code, _, err = run("runs", "gc", profile, "--run-dir", work[0], "--keep", "0", "--yes")
    assert (code, "--keep 0" in err) == (2, True)
