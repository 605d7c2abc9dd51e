"""Sixteen rollouts at once, half of them attackers: the honest ones fare as they do alone, and the host is unharmed."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from plugins.worlds.tests.attacks import ATTACKS, TAKING, calls_of
from plugins.worlds.tests.sandbox.test_attacks import is_gone
from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.core.kinds import kind_text
from tracewheel.environments import make_environment
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
LIMITS = {"seconds": 30.0, "memory_mb": 128, "processes": 24, "disk_mb": 4, "files": 200}
AT_ONCE = 16
HOSTILE = {
    "code": ["takes 10 GB of memory", "a zip bomb", "writes to inherited descriptors", "reads `/etc/shadow` in the tests"],
    "terminal": ["a fork bomb", "huge stdout", "many small files"],
}
SLEPT = f"7654{os.getpid()}"  # seconds
# Asks for what its siblings' watches need, kills all it can see, and leaves a process behind.
HOGS = " ".join(f"({attack.source}) &" for attack in TAKING[:2])
DAEMON = [("shell", {"command": f"{HOGS} setsid nohup sleep {SLEPT} > /dev/null 2>&1 & kill -9 -1"}), ("submit", {})]
# What descriptors of a box lead to; those of other tests in this process come and go.
OF_BOXES = re.compile(r"/memfd:box.*|anon_inode:(\[pidfd\]|inotify)|/box|/tmp|/dev/shm|/proc|/proc/\d+/net/snmp6?")


def open_for_boxes():
    """How many descriptors of this process lead to each part of a box."""
    found = Counter()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            found[os.readlink(path)] += 1
    return Counter({target: count for target, count in found.items() if OF_BOXES.fullmatch(target)})


def drawn(kind):
    """Eight tasks that any attack of the table can be tried on."""
    maker = make_environment(kind_text(kind, {"sandbox": {"limits": LIMITS}}))
    made = maker.make_tasks(60, 7)
    return [task for task in made if (task.family == "function" if kind == "code" else task.goal.get("files"))][:8]


@pytest.fixture
def play(scripted_engine, renderer, call_text):
    def play(tasks, scripts, threads):
        engine = scripted_engine(renderer, [[call_text(tool, **args) for tool, args in calls] for calls in scripts])
        config = RolloutConfig(max_tokens=12000, max_turn_tokens=6000, tool_threads=threads)
        found = run_episodes(engine, renderer, config, RolloutPlan(tasks, samples=1, seed=0))
        rubric = Rubric(RubricConfig(), tasks)
        return found, [rubric.score(task, episode) for task, episode in zip(tasks, found, strict=True)]

    return play


def test_attackers_harm_neither_the_batch_nor_the_host(play, tmp_path, monkeypatch):
    tasks = {kind: drawn(kind) for kind in HOSTILE}
    table = {attack.name: attack for attack in ATTACKS}
    bad = [
        (task, calls_of(table[name], task))
        for kind, names in HOSTILE.items()
        for name, task in zip(names, tasks[kind], strict=False)
    ]
    bad.append((tasks["terminal"][3], DAEMON))
    good = [(task, make_environment(task.environment).solution(task)) for kind in HOSTILE for task in tasks[kind][4:]]
    assert len(bad) == len(good) == AT_ONCE // 2
    alone, scores_alone = play(*zip(*good, strict=True), 0)

    (tmp_path / "canary").write_text("untouched")
    (tmp_path / "canary").chmod(0o666)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    neighbour = subprocess.Popen(["/bin/sleep", "600"], cwd="/", **user)
    mounts, opened = Path("/proc/self/mountinfo").read_text(), open_for_boxes()
    mixed = [pair for both in zip(bad, good, strict=True) for pair in both]
    found, scores = play(*zip(*mixed, strict=True), AT_ONCE)
    try:
        assert neighbour.poll() is None
        assert Path("/proc/self/mountinfo").read_text() == mounts and not open_for_boxes() - opened
        assert os.listdir(tmp_path) == ["canary"] and (tmp_path / "canary").read_text() == "untouched"
        assert is_gone(SLEPT)
    finally:
        neighbour.kill()
        neighbour.wait()

    assert [episode.stop_reason for episode in found] == ["finished"] * AT_ONCE
    assert [(score.status, score.total) for score in scores[::2]] == [("scored", 0.0)] * len(bad)
    assert [(score.total, score.breakdown) for score in scores[1::2]] == [
        (score.total, score.breakdown) for score in scores_alone
    ]
    assert {score.total for score in scores_alone} == {1.0}
    assert [episode.final_state for episode in found[1::2]] == [episode.final_state for episode in alone]
    flagged = [any(value for name, value in score.breakdown.items() if name.endswith("flagged")) for score in scores]
    marked = [bool(episode.final_state["findings"] or flag) for episode, flag in zip(found, flagged, strict=True)]
    assert marked == [True, False] * (len(bad) - 1) + [False, False]  # one may kill one's own processes
