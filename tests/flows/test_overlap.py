"""Rollouts overlapping the update: one policy behind, concurrent, and the same bytes after any kill."""

import json
import random
import shutil
import time

import psutil
import pytest

from flows.retrain import retrain
from tests.flows.conftest import WITHOUT_COMPARISONS
from tracewheel.core.files import read_table
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.run_record import ENTRIES_FILE
from tracewheel.core.store import remove

LEAN = [f"comparison.{name}={str(value).lower()}" for name, value in WITHOUT_COMPARISONS.items()]
# On a busy machine a rollout begins a second after it is asked for. An update of a few groups that agree within themselves
# makes no step and is over by then; one that compares all episodes of the batch, many times, is not.
LONG_UPDATES = ["learner.advantage={kind: batch, center: batch}", "learner.epochs=8"]
SETTINGS = ["rollout.mode=overlap", "training.iterations=3", *LONG_UPDATES, *LEAN]
OVERLAP = [part for setting in SETTINGS for part in ("--set", setting)]


@pytest.fixture(scope="module")
def overlapped(finished, profile, prefect_harness, tmp_path_factory):
    """A complete run with overlap, whose stages before the loop are those of the finished run: its folder and its summary."""
    folder = tmp_path_factory.mktemp("overlapped")
    of_the_loop = shutil.ignore_patterns(*(f"{stage}-*" for stage in ("rollout", "score", "update", "gate")), ".lock")
    shutil.copytree(finished[0] / "store", folder / "store", ignore=of_the_loop)
    summary = retrain(str(profile), SETTINGS, str(folder))
    used = set((folder / summary["run_id"] / ENTRIES_FILE).read_text().split())
    for path in (folder / "store").iterdir():
        if path.name not in used and not path.name.startswith("."):
            remove(path)
    return folder, summary


def loop_of(folder, summary):
    return json.loads((folder / summary["run_id"] / "loop.json").read_text())["iterations"]


def test_rollouts_are_exactly_one_policy_behind(overlapped):
    folder, summary = overlapped
    versions = {}
    for number, made in loop_of(folder, summary).items():
        (rollout,) = made["rollouts"]
        versions[number] = set(read_table(folder / "store" / rollout / "trajectories.parquet")["policy_version"])
    assert versions == {"1": {0}, "2": {0}, "3": {1}}
    assert summary["rollouts"] == {"rl": {"mode": "overlap"}}
    findings = json.loads((folder / summary["run_id"] / "doctor.json").read_text())["findings"]
    assert [item["severity"] for item in findings if item["check"] == "stale_adapter"] == ["healthy"]


def test_the_next_rollout_begins_before_the_update_ends(overlapped):
    folder, summary = overlapped
    made, facts = loop_of(folder, summary), folder / "store" / ".facts"

    def span(name):
        found = json.loads((facts / f"{name}.json").read_text())
        return found["finished"] - found["seconds"], found["finished"]

    for number in (1, 2):
        _, update_ended = span(made[str(number)]["update"])
        rollout_began, _ = span(made[str(number + 1)]["rollouts"][0])
        assert rollout_began < update_ended


def test_nothing_is_rolled_out_after_the_last_iteration(overlapped):
    folder, _ = overlapped
    assert len(list((folder / "store").glob("rollout-*"))) == 3


def test_planning_a_complete_run_finds_everything_and_starts_nothing(overlapped, profile, run):
    folder, _ = overlapped
    plan = json.loads(run("retrain", profile, "--run-dir", folder, *OVERLAP, "--dry-run", "--json")[1])
    assert plan["complete"]
    assert plan["next"] is None


def check_kills(rounds, seed, overlapped, profile, command, spawn, entries, tmp_path):
    whole, summary = overlapped
    rng, known = random.Random(seed), entries(whole)
    for number in range(rounds):
        folder = tmp_path / str(number)
        process = spawn("retrain", profile, "--run-dir", folder, *OVERLAP, log=tmp_path / f"{number}.log")
        moment = rng.randrange(2, len(known))
        while len(list((folder / "store").glob("[!.]*"))) < moment and process.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 1.0))
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, "a process outlived the killed command"
        resumed = command("retrain", profile, "--run-dir", folder, *OVERLAP, "--json")
        assert resumed.returncode in (0, 3), resumed.stderr
        result = json.loads(resumed.stdout)
        assert entries(folder) == known
        assert digest_of(folder / result["run_id"] / "adapter") == digest_of(whole / summary["run_id"] / "adapter")
        assert not list(folder.rglob(".partial-*"))


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(overlapped, profile, command, spawn, entries, tmp_path):
    check_kills(1, 3, overlapped, profile, command, spawn, entries, tmp_path)


@pytest.mark.slow
def test_ten_kills_and_resumes_give_the_same_adapter(overlapped, profile, command, spawn, entries, tmp_path):
    check_kills(10, 4, overlapped, profile, command, spawn, entries, tmp_path)
