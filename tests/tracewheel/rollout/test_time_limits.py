"""Tools that hang: their episode ends as an infrastructure failure, the others end as they would, nothing waits for ever."""

import dataclasses
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.core.errors import TimeLimitError
from tracewheel.core.kind_table import give
from tracewheel.core.time_limits import MOST_HUNG
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

ROOT = Path(__file__).parents[3]
QUICK = RolloutConfig(max_tokens=4000, max_turn_tokens=1000, step_seconds=0.4)


class Sleeps(WorkspaceEnvironment):
    """A call blocks, as on a lock that nobody gives back, until the test ends."""

    go_on = threading.Event()

    def step(self, tool, args):
        if tool == "move_file":
            self.go_on.wait()
        return super().step(tool, args)


class Spins(WorkspaceEnvironment):
    def step(self, tool, args):
        while tool == "move_file":
            pass
        return super().step(tool, args)


class IgnoresTheEnd(Sleeps):
    """Catches whatever should end it."""

    def step(self, tool, args):
        while tool == "move_file" and not self.go_on.is_set():
            try:
                time.sleep(0.01)
            except BaseException:
                continue
        return super().step(tool, args)


class HangsAtReset(Sleeps):
    def reset(self, task):
        self.go_on.wait()


class HangsAtTheEnd(Sleeps):
    def step(self, tool, args):
        return WorkspaceEnvironment.step(self, tool, args)

    def snapshot(self):
        self.go_on.wait()
        return super().snapshot()


class Slow(WorkspaceEnvironment):
    """Each call ends in time; all together do not."""

    def step(self, tool, args):
        time.sleep(0.1)
        return super().step(tool, args)


HANGING = (Sleeps, Spins, IgnoresTheEnd, HangsAtReset, HangsAtTheEnd)


@pytest.fixture(autouse=True)
def released():
    Sleeps.go_on.clear()
    yield
    Sleeps.go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("tool"):
            thread.join(10)


def where(task, kind):
    return dataclasses.replace(task, environment=give(f"{__name__}:{kind.__name__}"))


@pytest.fixture
def play(scripted_engine, renderer, solution_words):
    def run(some, config):
        engine = scripted_engine(renderer, [solution_words(task) for task in some])
        return run_episodes(engine, renderer, config, RolloutPlan(some, samples=1, seed=0))

    return run


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("kind", HANGING)
def test_a_hanging_tool_ends_its_own_episode_only(play, tasks, kind, threads):
    config = QUICK.model_copy(update={"tool_threads": threads})
    mixed = [where(task, kind if number == 1 else WorkspaceEnvironment) for number, task in enumerate(tasks[:6])]
    found = play(mixed, config)
    doing = {HangsAtReset: "reset", HangsAtTheEnd: "snapshot"}.get(kind, "step move_file")
    assert [episode.stop_reason for episode in found] == ["finished", "infrastructure_failed", *["finished"] * 4]
    assert found[1].detail == f"TimeLimitError: {doing}: over 0.4 s (rollout.step_seconds)"
    healthy = play(
        [where(task, WorkspaceEnvironment) for task in tasks[:6]], RolloutConfig(max_tokens=4000, max_turn_tokens=1000)
    )
    assert [found[0], *found[2:]] == [healthy[0], *healthy[2:]]


def test_a_loop_that_spins_is_ended(play, tasks):
    play([where(tasks[0], Spins)], QUICK)
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("tool") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_episode_has_a_limit_of_its_own(play, tasks):
    config = QUICK.model_copy(update={"step_seconds": None, "episode_seconds": 0.25})
    slow, quick = play([where(tasks[0], Slow), where(tasks[1], WorkspaceEnvironment)], config)
    assert (slow.stop_reason, quick.stop_reason) == ("infrastructure_failed", "finished")
    assert "over 0.25 s (rollout.episode_seconds)" in slow.detail
    assert 1 < len(slow.turns) <= 4


def test_too_many_hanging_tools_end_the_rollout(play, tasks):
    """All episodes hang, as when a server is gone: the rollout says so, long before each has waited."""
    config = QUICK.model_copy(update={"step_seconds": 0.05, "tool_threads": 4})
    many = [where(tasks[0], Sleeps)] * (2 * MOST_HUNG)
    started = time.monotonic()
    with pytest.raises(
        TimeLimitError, match=rf"{MOST_HUNG} calls hang .* step move_file: over 0.05 s \(rollout.step_seconds\)"
    ):
        play(many, config)
    assert time.monotonic() - started < 30


def test_a_process_ends_although_its_tool_hangs():
    code = """
import threading
from tracewheel.core.time_limits import Job, Timer, WatchedThreads
threads = WatchedThreads(1)
job = Job(threading.Event().wait, Timer(0.1, names=("limit", "")), "call")
threads.run([job])
threads.close()
print(job.error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "call: over 0.1 s (limit)\n"
