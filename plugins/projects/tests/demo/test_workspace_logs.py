"""The shipped logs: reproducible, consistent with the environment, and with the intended habits."""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from data.workspace_logs import DUPLICATES, FAULTS, HABITS, faulty_calls, log_lines
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import FAMILIES, SOURCES, make_task
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_projects.demo.deployed_logs import BREAKAGES

ROOT = Path(__file__).parents[4]
SHIPPED = ROOT / "data/traces/workspace.jsonl"


@pytest.fixture(scope="module")
def lines():
    return list(log_lines())


def test_the_shipped_file_equals_the_scripts_output(lines, tmp_path):
    written = b"".join(line + b"\n" for line in lines)
    assert SHIPPED.read_bytes() == written
    out = tmp_path / "traces.jsonl"
    subprocess.run(
        [sys.executable, "data/make_traces.py", "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins/projects")])},
        check=True,
        capture_output=True,
    )
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(written).digest()


def test_another_seed_gives_other_logs(lines):
    assert next(log_lines(1)) != lines[0]


def test_duplicates_are_exact_and_broken_lines_are_few(lines):
    assert len(lines) - len(set(lines)) == DUPLICATES
    readable = 0
    for line in lines:
        try:
            readable += isinstance(json.loads(line), dict)
        except ValueError:
            continue
    # The other three breakages are inside an object that is JSON.
    assert len(lines) - readable == len(BREAKAGES) - 3


def test_no_user_or_session_has_both_recurring_and_one_off_tasks(lines):
    attempts, owners = {}, {}
    for line in set(lines):
        try:
            record = json.loads(line)
            task = json.dumps(record["environment"], sort_keys=True)
            record["messages"]
        except (ValueError, TypeError, KeyError):
            continue
        attempts[task] = attempts.get(task, 0) + 1
        owners.setdefault(task, set()).update((record["user"], record["session"]))
    recurring = set().union(*(who for task, who in owners.items() if attempts[task] >= 4))
    one_off = set().union(*(who for task, who in owners.items() if attempts[task] < 4))
    assert recurring
    assert one_off
    assert not recurring & one_off


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tier", [2, 3, 4, 5])
def test_every_fault_of_a_family_fails_and_no_fault_succeeds(family, tier):
    rng = random.Random(f"{family}{tier}")
    faults = {habit.fault for habit in HABITS if habit.family == family} | {
        "forget_manifest",
        "stop_early",
        "move_one_too_many",
    }
    for _ in range(10):
        task = make_task(family, tier, rng)
        assert _total(task, faulty_calls(task, "")) == 1.0
        assert faulty_calls(task, "") == solution(task)
        for fault in sorted(faults):
            assert _total(task, faulty_calls(task, fault)) == 0.0, fault


def test_habits_name_faults_and_cover_every_context():
    assert {habit.fault for habit in HABITS} == set(FAULTS)
    for family in FAMILIES:
        for source in SOURCES:
            for tier in (2, 3, 4, 5):
                rates = [h.rate for h in HABITS if h.family == family and source in h.sources and tier in h.tiers]
                assert len(rates) == 1
                assert 0.55 <= rates[0] <= 0.8


def _total(task, calls):
    environment = WorkspaceEnvironment()
    environment.reset(task)
    for call in calls:
        environment.step(*call)
    return make_verifier(task.verifier).verify(task, environment.snapshot())[0]
