"""Rollouts overlapping the update: one policy behind, concurrent, and the same bytes after any kill."""

import json
import random
import time

import psutil
import pytest

from tests.flows.conftest import WITHOUT_COMPARISONS
from tracewheel.core.files import read_table
from tracewheel.core.fingerprint import digest_of

LEAN = (part for name, value in WITHOUT_COMPARISONS.items() for part in ("--set", f"comparison.{name}={str(value).lower()}"))
# On a busy machine a rollout begins a second after it is asked for. An update of a few groups that agree within themselves
# makes no step and is over by then; one that compares all episodes of the batch, many times, is not.
LONG_UPDATES = ("--set", "learner.advantage={kind: batch, center: batch}", "--set", "learner.epochs=8")
OVERLAP = ("--set", "rollout.mode=overlap", "--set", "training.iterations=3", *LONG_UPDATES, *LEAN)


@pytest.fixture(scope="module")
def overlapped(profile, command, tmp_path_factory):
    """A complete run with overlap: its folder, its summary, its seconds."""
    folder = tmp_path_factory.mktemp("overlapped")
    started = time.monotonic()
    done = command("retrain", profile, "--run-dir", folder, *OVERLAP, "--json")
    assert done.returncode in (0, 3), done.stderr
    return folder, json.loads(done.stdout), time.monotonic() - started


def loop_of(folder, summary):
    return json.loads((folder / summary["run_id"] / "loop.json").read_text())["iterations"]


def test_rollouts_are_exactly_one_policy_behind(overlapped):
    folder, summary, _ = overlapped
    versions = {}
    for number, made in loop_of(folder, summary).items():
        (rollout,) = made["rollouts"]
        versions[number] = set(read_table(folder / "store" / rollout / "trajectories.parquet")["policy_version"])
    assert versions == {"1": {0}, "2": {0}, "3": {1}}
    assert summary["rollouts"] == {"rl": {"mode": "overlap"}}
    findings = json.loads((folder / summary["run_id"] / "doctor.json").read_text())["findings"]
    assert [item["severity"] for item in findings if item["check"] == "stale_adapter"] == ["healthy"]


def test_the_next_rollout_begins_before_the_update_ends(overlapped):
    folder, summary, _ = overlapped
    made, facts = loop_of(folder, summary), folder / "store" / ".facts"

    def span(name):
        found = json.loads((facts / f"{name}.json").read_text())
        return found["finished"] - found["seconds"], found["finished"]

    for number in (1, 2):
        _, update_ended = span(made[str(number)]["update"])
        rollout_began, _ = span(made[str(number + 1)]["rollouts"][0])
        assert rollout_began < update_ended


def test_nothing_is_rolled_out_after_the_last_iteration(overlapped):
    folder, _, _ = overlapped
    assert len(list((folder / "store").glob("rollout-*"))) == 3


def test_planning_a_complete_run_finds_everything_and_starts_nothing(overlapped, profile, run):
    folder, _, _ = overlapped
    plan = json.loads(run("retrain", profile, "--run-dir", folder, *OVERLAP, "--dry-run", "--json")[1])
    assert plan["complete"]
    assert plan["next"] is None


def check_kills(rounds, seed, overlapped, profile, command, spawn, entries, tmp_path):
    whole, summary, seconds = overlapped
    rng = random.Random(seed)
    for number in range(rounds):
        folder = tmp_path / str(number)
        process = spawn("retrain", profile, "--run-dir", folder, *OVERLAP, log=tmp_path / f"{number}.log")
        time.sleep(seconds * rng.uniform(0.3, 0.8))
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, "a process outlived the killed command"
        resumed = command("retrain", profile, "--run-dir", folder, *OVERLAP, "--json")
        assert resumed.returncode in (0, 3), resumed.stderr
        result = json.loads(resumed.stdout)
        assert entries(folder) == entries(whole)
        assert digest_of(folder / result["run_id"] / "adapter") == digest_of(whole / summary["run_id"] / "adapter")
        assert not list(folder.rglob(".partial-*"))


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(overlapped, profile, command, spawn, entries, tmp_path):
    check_kills(1, 3, overlapped, profile, command, spawn, entries, tmp_path)


@pytest.mark.slow
def test_ten_kills_and_resumes_give_the_same_adapter(overlapped, profile, command, spawn, entries, tmp_path):
    check_kills(10, 4, overlapped, profile, command, spawn, entries, tmp_path)
