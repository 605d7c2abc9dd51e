"""Task generation: reproducible, solvable, not solved at the start, and without leaks of the goal."""

import os
import random
import subprocess
import sys

import pytest

from tracewheel.core.types import Task, canonical_json
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import FAMILIES, make_task, selected_files, workspace_task
from tracewheel.scoring.verifiers import make_verifier

TIERS = (1, 2, 3, 4, 5)
STRATA = [(family, tier) for family in FAMILIES for tier in TIERS]
GENERATE = """
import random
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.core.types import content_hash
rng = random.Random(11)
tasks = [make_task(family, tier, rng).to_record() for family in FAMILIES for tier in (2, 3, 4, 5) for _ in range(5)]
print(content_hash(tasks, 64))
"""


def test_tasks_are_the_same_in_every_process():
    hashes = {
        subprocess.run(
            [sys.executable, "-c", GENERATE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(hashes) == 1
    assert len(hashes.pop().strip()) == 64


@pytest.mark.parametrize(("family", "tier"), STRATA)
def test_the_solution_scores_one_and_nothing_scores_zero(family, tier):
    rng = random.Random(f"{family}-{tier}")
    for _ in range(20):
        task = make_task(family, tier, rng)
        assert (task.family, task.tier) == (family, tier)
        environment = WorkspaceEnvironment()
        environment.reset(task)
        verify = make_verifier(task.verifier).verify
        assert verify(task, environment.snapshot())[0] == 0.0
        for call in solution(task):
            assert not environment.step(*call).error
        assert verify(task, environment.snapshot()) == (1.0, {"files_moved": 1.0, "manifest": 1.0, "untouched": 1.0})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_has_files_that_it_does_not_select(family):
    rng = random.Random(5)
    for tier in TIERS:
        task = make_task(family, tier, rng)
        in_source = [path for path in task.initial_state["files"] if path.startswith(task.goal["source"] + "/")]
        assert 1 <= len(in_source) - len(selected_files(task.initial_state, task.goal)) <= 2


@pytest.mark.parametrize("family", FAMILIES)
def test_observations_do_not_depend_on_the_goal(family):
    """Two tasks on the same files with different goals get the same replies to the same calls."""
    rng = random.Random(9)
    for tier in (2, 5):
        task = make_task(family, tier, rng)
        goal = {**task.goal, "selector": {"kind": "pattern", "value": ".none"}, "manifest": "/elsewhere/secret.json"}
        other = workspace_task("Something else.", task.initial_state, goal)
        calls = [*solution(task)[:-1], ("search_files", {"path": "/"}), ("read_file", {"path": "/none"}), ("finish", {})]
        replies = [m["content"] for m in play(task, calls) if m["role"] == "tool"]
        assert replies == [m["content"] for m in play(other, calls) if m["role"] == "tool"]
        assert not any(canonical_json(task.goal) in reply or "selector" in reply for reply in replies)


def test_replies_do_not_reveal_whether_the_task_is_solved():
    task = make_task("pattern", 3, random.Random(2))
    right, wrong = solution(task), [("write_file", {"path": task.goal["manifest"], "content": "[]"}), ("finish", {})]
    assert play(task, right)[-2]["content"] == play(task, wrong)[-2]["content"] == "ok"


def test_the_fingerprint_ignores_only_the_wording():
    task = make_task("prefix", 3, random.Random(4))
    reworded = workspace_task("Other words.", task.initial_state, task.goal)
    assert reworded.fingerprint == task.fingerprint
    assert reworded.id != task.id
    more_files = {**task.initial_state, "files": {**task.initial_state["files"], "/x.txt": ""}}
    assert workspace_task(task.prompt, more_files, task.goal).fingerprint != task.fingerprint
    elsewhere = {**task.goal, "destination": "/elsewhere"}
    assert workspace_task(task.prompt, task.initial_state, elsewhere).fingerprint != task.fingerprint


def test_a_task_survives_its_record():
    task = make_task("list", 4, random.Random(8))
    assert Task.from_record(task.to_record()) == task
