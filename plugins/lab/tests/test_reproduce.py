"""Finished runs made again by the command line: equal bit by bit, and where they part once a stage's code has changed."""

import contextlib
import json
import subprocess
import sys

import pytest
import yaml

from flows.cli import BAD_INPUT, DONE, PARTED, REFUSED
from flows.setup import resolve_config
from tasks.engine.reading import last_run
from tasks.engine.run import Run
from tasks.tracking.registry import register
from tasks.tracking.tracking import Tracking
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import PACKAGE
from tracewheel_lab.commands.reproduce import sections_of

ROOT = PACKAGE.parent
# The shipped short profile takes one step of a warm start, at a learning rate of 0: no change of code could change it. With
# these all steps are in the rise of the learning rate, and the first update has a group with a signal.
SHORT = ["--set", "comparison={}", "--set", "warm_start.batch_size=4", "--set", "warm_start.epochs=2"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, environment):
    """A clone of the code with what is not committed, as a user's repository; and a command that runs its `tracewheel`."""
    folder = tmp_path_factory.mktemp("clone") / "code"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
    diff = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    if diff:
        subprocess.run(["git", "apply", "--binary"], cwd=folder, input=diff, check=True)
        git(folder, "commit", "-qam", "not committed")

    def command(*arguments, code=folder):
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *map(str, arguments)],
            cwd=code,
            env=environment | {"PYTHONPATH": f"{code}:{ROOT}/plugins/lab"},
            capture_output=True,
            text=True,
            timeout=1800,
        )

    return folder, command


@pytest.fixture(scope="module")
def first(checkout, profile, tmp_path_factory):
    """A finished run of the clone."""
    _, command = checkout
    folder = tmp_path_factory.mktemp("first")
    done = command("retrain", profile, *SHORT, "--run-dir", folder, "--json")
    assert done.returncode in (DONE, REFUSED), done.stderr
    return folder, json.loads(done.stdout)["run_id"]


def crown(profile, folder):
    """Make the last update the champion, whatever the gate decided."""
    config = resolve_config(str(profile), SHORT[1::2], str(folder))
    run = last_run(config)
    updates = [path for path in run.store.root.iterdir() if path.name.startswith("update-")]
    adapter = next(path / "adapter" for path in updates if read_json(path / "adapter" / "adapter.json")["version"] == 2)
    tracking = Tracking.open(config, run.record)
    with tracking.closing():
        register(Run(config, run.store, run.record, tracking=tracking), adapter, {"verdict": "promoted"})


@contextlib.contextmanager
def changed(clone, path, old, new, *, commit=False):
    """A change of a file of the clone, committed or not; the end takes it back."""
    file = clone / "tracewheel" / "learner" / path
    before = file.read_text()
    assert before.count(old) == 1
    file.write_text(before.replace(old, new))
    if commit:
        git(clone, "commit", "-qam", "a change")
    try:
        yield
    finally:
        if commit:
            git(clone, "reset", "-q", "--hard", "HEAD~1")
        else:
            file.write_text(before)


def git(clone, *arguments):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments], cwd=clone, check=True)


FASTER = ("warm_start/fine_tuning.py", "return step / warmup", "return 5 * step / warmup")
WITHOUT_BASELINE = (
    "advantages/group.py",
    "advantages = statistics.rewards - statistics.mean[index]",
    "advantages = statistics.rewards",
)


@pytest.mark.slow
def test_a_short_run_is_equal_bit_by_bit(checkout, first):
    _, command = checkout
    folder, run_id = first
    done = command("runs", "reproduce", run_id, "--run-dir", folder, "--json")
    assert done.returncode == DONE, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "equal"
    assert {"ingest", "curate", "warm_start", "rollout", "score", "update", "evaluate", "gate"} == {
        stage["stage"] for stage in found["stages"]
    }
    assert all(stage["same_key"] for stage in found["stages"])


@pytest.mark.slow
def test_a_run_from_a_champion_is_equal_bit_by_bit(checkout, first, profile):
    _, command = checkout
    folder, _ = first
    crown(profile, folder)
    done = command("retrain", profile, *SHORT, "--set", "learner.kl=0.02", "--run-dir", folder, "--json")
    assert done.returncode in (DONE, REFUSED), done.stderr
    run_id = json.loads(done.stdout)["run_id"]
    assert read_json(folder / run_id / "start.json")["champion"]
    again = command("runs", "reproduce", folder / run_id, "--json")
    assert again.returncode == DONE, again.stderr
    assert "champion" in {stage["stage"] for stage in json.loads(again.stdout)["stages"]}


@pytest.mark.slow
def test_a_run_with_dpo_is_equal_bit_by_bit(checkout, profile, tmp_path):
    _, command = checkout
    values = yaml.safe_load(profile.read_text())
    values["learner"] = {
        "kind": "dpo",
        **{name: value for name, value in values["learner"].items() if name not in ("constant_length", "kl")},
    }
    (tmp_path / "dpo.yaml").write_text(yaml.safe_dump(values))
    done = command("retrain", tmp_path / "dpo.yaml", *SHORT, "--run-dir", tmp_path / "runs", "--json")
    assert done.returncode in (DONE, REFUSED), done.stderr
    again = command("runs", "reproduce", tmp_path / "runs", "--json")
    assert again.returncode == DONE, again.stderr


@pytest.mark.slow
def test_changed_code_parts_at_its_stage_and_is_named(checkout, first, tmp_path):
    clone, command = checkout
    folder, run_id = first
    with changed(clone, *FASTER):
        wrong = command(
            "runs",
            "reproduce",
            folder / run_id,
            "--code",
            "here",
            "--stages",
            "warm_start",
            "--folder",
            tmp_path / "out",
            "--json",
        )
        assert wrong.returncode == PARTED, wrong.stderr
        right = command("runs", "reproduce", folder / run_id, "--stages", "warm_start", "--json")
        assert right.returncode == DONE, right.stderr
    found = json.loads(wrong.stdout)
    states = {stage["stage"]: stage["state"] for stage in found["stages"]}
    assert states == {"ingest": "equal", "curate": "equal", "warm_start": found["stages"][-1]["state"]}
    parted = found["stages"][-1]
    assert (parted["label"], parted["same_key"]) == (found["first"], False)
    assert parted["files"][0]["place"].startswith("tensor ")
    assert any("tracewheel/learner/warm_start/fine_tuning.py: linear_schedule" in why for why in found["why"])


@pytest.mark.slow
def test_a_committed_change_of_the_advantages_parts_at_the_first_update(checkout, first, tmp_path):
    clone, command = checkout
    folder, run_id = first
    with changed(clone, *WITHOUT_BASELINE, commit=True):
        parted = command("runs", "reproduce", folder / run_id, "--code", "here", "--folder", tmp_path / "out", "--json")
        recorded = command("runs", "reproduce", folder / run_id, "--stages", "update", "--json")
    assert parted.returncode == PARTED, parted.stderr
    found = json.loads(parted.stdout)
    labels = [stage["label"] for stage in found["stages"]]
    place = labels.index(found["first"])
    assert found["first"] == "update 1 of 2" and {"curate", "rollout 1 of 2", "score 1 of 2"} <= set(labels[:place])
    assert {stage["state"] for stage in found["stages"][:place]} == {"equal"}
    files = {file["file"]: file for file in found["stages"][place]["files"]}
    assert files["adapter/adapter_model.safetensors"]["place"].startswith("tensor ")
    assert files["metrics.json"]["before"] != files["metrics.json"]["after"]
    assert any("tracewheel/learner/advantages/group.py: group_advantages" in why for why in found["why"])
    assert sections_of(found)[0].heading == "The first stage that differs: update 1 of 2 (parts)"
    assert recorded.returncode == DONE, "the run's own commit still makes it: " + recorded.stderr


@pytest.mark.slow
def test_a_run_of_changed_files_is_made_again_from_another_clone(checkout, profile, tmp_path):
    clone, command = checkout
    with changed(clone, *WITHOUT_BASELINE, commit=True), changed(clone, *FASTER):
        done = command("retrain", profile, *SHORT, "--run-dir", tmp_path / "runs", "--json")
    assert done.returncode in (DONE, REFUSED), done.stderr
    run = tmp_path / "runs" / json.loads(done.stdout)["run_id"]
    assert "5 * step" in (run / read_json(run / "lineage.json")["git"]["diff"]["file"]).read_text()
    lost = command("runs", "reproduce", run, code=ROOT)
    assert lost.returncode == BAD_INPUT and "--repository DIR" in lost.stderr
    again = command("runs", "reproduce", run, "--repository", clone, "--stages", "update", "--json", code=ROOT)
    assert again.returncode == DONE, again.stderr
    stages = {stage["stage"] for stage in json.loads(again.stdout)["stages"]}
    assert {"warm_start", "rollout", "update"} <= stages


@pytest.mark.slow
def test_a_commit_that_is_lost_is_refused(checkout, first):
    _, command = checkout
    folder, run_id = first
    record = folder / run_id
    lineage = read_json(record / "lineage.json")
    (record / "lineage.json").write_text(json.dumps({**lineage, "git": {**lineage["git"], "commit": "0" * 40}}))
    try:
        lost = command("runs", "reproduce", record)
    finally:
        (record / "lineage.json").write_text(json.dumps(lineage, indent=2) + "\n")
    assert lost.returncode == BAD_INPUT
    assert "--code here" in lost.stderr
