"""The browser of a process: what ends it, and many episodes at once."""

import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from plugins.web.tests.conftest import opened
from tracewheel import BridgeFailure


def chromium_processes():
    return [child for child in psutil.Process().children(recursive=True) if "chrom" in child.name()]


def test_a_killed_browser_ends_the_episode_without_a_score_and_the_next_starts_another(visitor):
    visitor.visit("/")
    for process in chromium_processes():
        process.send_signal(signal.SIGKILL)
    with pytest.raises(BridgeFailure):
        visitor.look()
    assert 'textbox "Thing"' in visitor.visit("/")


def test_so_does_a_killed_driver(visitor):
    visitor.visit("/")
    for process in [child for child in psutil.Process().children(recursive=True) if "node" in child.name()]:
        process.kill()
    with pytest.raises(BridgeFailure):
        visitor.look()
    assert 'textbox "Thing"' in visitor.visit("/")


def test_a_page_that_crashes_is_no_reward(visitor):
    visitor.visit("/")
    page = visitor.environment._page
    with pytest.raises(BridgeFailure):
        for _ in range(3):
            visitor.environment._work(page._tab._session.send("Page.crash"), 3.0, "crash")
    with pytest.raises(BridgeFailure):
        visitor.look()
    assert 'textbox "Thing"' in visitor.visit("/")


def test_a_rollout_calls_it_unscored(visitor):
    with pytest.raises(BridgeFailure, match="browser: step: Target closed$") as failure:
        visitor.environment._work(_raises(), 1.0, "step")
    assert failure.value.fault == "environment"


async def _raises():
    from playwright.async_api import Error

    raise Error("Target closed\nmore")


@pytest.mark.parametrize("episodes", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_many_at_once_are_as_one_at_a_time(miniwob_pages, episodes):
    def play(task):
        environment = opened("miniwob")
        environment.reset(task)
        for call in solutions[task.id]:
            environment.step(*call)
        state = environment.snapshot()
        environment.close()
        return state

    maker = opened("miniwob")
    tasks = maker.make_tasks(episodes, seed=5)
    solutions = {task.id: maker.solution(task) if place % 2 else [] for place, task in enumerate(tasks)}
    alone = [play(task) for task in tasks]
    with ThreadPoolExecutor(episodes) as pool:
        assert list(pool.map(play, tasks)) == alone
    assert [state["verdict"]["reward"] for state in alone] == [float(place % 2) for place in range(episodes)]
