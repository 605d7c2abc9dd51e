"""Asynchronous environments, what their episodes share, their limit of open episodes, and that all is closed."""

import asyncio
import dataclasses
import threading
import time
from typing import ClassVar

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.core.kinds import kind_text
from tracewheel.environments.running import close_resources
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

CONFIG = RolloutConfig(max_tokens=4000, max_turn_tokens=1000, tool_threads=8)
PAUSE = 0.05


class Counted(WorkspaceEnvironment):
    """Counts what is open, and what steps at once; its resources are a lock of the event loop."""

    kind = f"{__name__}:Counted"
    open: ClassVar[set] = set()
    most: ClassVar[list] = []
    made: ClassVar[list] = []
    stepping: ClassVar[set] = set()
    most_stepping: ClassVar[list] = []

    def __init__(self, max_concurrent: int | None = None, hang: bool = False, noise_seed: int = 0):
        super().__init__()
        self.hang = hang

    @classmethod
    async def setup(cls, args):
        cls.made.append(["open", args])
        await asyncio.sleep(0.01)
        return asyncio.Lock()

    @classmethod
    async def close_resources(cls, resources):
        assert not resources.locked()
        cls.made[-1][0] = "closed"

    async def reset(self, task):
        super().reset(task)
        self.open.add(self)
        self.most.append(len(self.open))

    async def step(self, tool, args):
        if self.hang:
            await asyncio.sleep(60)
        async with self.resources:  # bound to one loop: other threads' steps come to it, too
            pass
        self.stepping.add(self)
        self.most_stepping.append(len(self.stepping))
        await asyncio.sleep(PAUSE)
        self.stepping.discard(self)
        return super().step(tool, args)

    async def close(self):
        self.open.discard(self)


@pytest.fixture(autouse=True)
def counted():
    for kept in (Counted.open, Counted.most, Counted.made, Counted.stepping, Counted.most_stepping):
        kept.clear()
    yield
    close_resources()


@pytest.fixture
def play(scripted_engine, renderer, solution_words):
    def run(tasks, config=CONFIG, samples=1, **args):
        wanted = [dataclasses.replace(task, environment=kind_text(Counted.kind, args)) for task in tasks]
        engine = scripted_engine(renderer, [solution_words(task) for task in wanted for _ in range(samples)])
        return run_episodes(engine, renderer, config, RolloutPlan(wanted, samples=samples, seed=0))

    return run


def test_asynchronous_steps_run_at_once_and_share_resources(play, tasks):
    found = play(tasks[:2], samples=4)
    assert {trajectory.stop_reason for trajectory in found} == {"finished"} and max(Counted.most_stepping) > 1
    assert Counted.made == [["open", {}]] and not Counted.open and max(Counted.most) > 1
    assert [thread.name for thread in threading.enumerate()].count("environments") == 1
    Counted.most_stepping.clear()
    alone = play(tasks[:2], CONFIG.model_copy(update={"tool_threads": 0}), samples=4)
    assert alone == found and len(Counted.made) == 1 and max(Counted.most_stepping) == 1
    close_resources()
    assert Counted.made == [["closed", {}]]


def test_the_noise_of_another_iteration_shares_the_resources(play, tasks):
    assert {trajectory.stop_reason for seed in (1, 2) for trajectory in play(tasks[:1], noise_seed=seed)} == {"finished"}
    assert Counted.made == [["open", {}]]


def test_at_most_so_many_episodes_are_open(play, tasks):
    found = play(tasks[:2], samples=4, max_concurrent=2)
    assert len(found) == 8 and max(Counted.most) == 2 and not Counted.open
    assert {trajectory.stop_reason for trajectory in found} == {"finished"}


def test_a_coroutine_that_hangs_ends_its_own_episode(play, tasks):
    started = time.monotonic()
    (found,) = play(tasks[:1], CONFIG.model_copy(update={"step_seconds": 0.3}), hang=True)
    assert found.stop_reason == "infrastructure_failed" and found.fault == "environment" and "over 0.3 s" in found.detail
    assert time.monotonic() - started < 20


def test_environments_of_an_interrupted_rollout_are_closed(scripted_engine, renderer, tasks, solution_words):
    task = dataclasses.replace(tasks[0], environment=Counted.kind)
    engine = scripted_engine(renderer, [solution_words(task)])
    engine.step = lambda: (_ for _ in ()).throw(RuntimeError("the engine died"))
    config = CONFIG.model_copy(update={"tool_threads": 0})
    with pytest.raises(RuntimeError, match="the engine died"):
        run_episodes(engine, renderer, config, RolloutPlan([task], samples=1, seed=0))
    assert Counted.most == [1] and not Counted.open
