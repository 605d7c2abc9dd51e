"""Runs at once: no more than there are places, and the wait for one counts for no limit."""

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracewheel.core.errors import InfrastructureError
from tracewheel.core.processes import usable_cores
from tracewheel.core.time_limits import Job, Timer, WatchedThreads
from tracewheel_worlds.sandbox import Limits, places
from tracewheel_worlds.sandbox.bubblewrap import Bubblewrap
from tracewheel_worlds.sandbox.docker import Docker
from tracewheel_worlds.sandbox.places import PLACES_PER_CORE, Places
from tracewheel_worlds.sandbox.unsafe_local import UnsafeLocal

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
# The clock that all processes of a machine share: when a program began, and when it ended.
TIMED = ["python3", "-c", "import time; print(time.monotonic()); time.sleep(0.3); print(time.monotonic())"]


@pytest.fixture
def with_places(monkeypatch):
    def have(count):
        monkeypatch.setattr(places, "_places", Places(count))
        return places.places()

    return have


def most_at_once(stretches):
    """How many of these pairs of times overlap at most."""
    changes = sorted([(began, 1) for began, _ in stretches] + [(ended, -1) for _, ended in stretches])
    now = [sum(change for _, change in changes[: place + 1]) for place in range(len(changes))]
    return max(now)


@pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param(lambda: Bubblewrap(shutil.which("bwrap")), marks=boxed),
        pytest.param(lambda: Bubblewrap(shutil.which("bwrap")), marks=boxed),
        UnsafeLocal,
    ],
    ids=["bubblewrap", "boxes that wait", "unsafe_local"],
)
def test_more_runs_than_places_all_give_results_and_never_run_all_at_once(with_places, sandbox):
    of_three, made = with_places(3), sandbox()
    with ThreadPoolExecutor(12) as threads:
        runs = list(threads.map(lambda _: made.run(TIMED, limits=Limits(seconds=30)), range(12)))
    assert [(run.exit_code, run.findings) for run in runs] == [(0, ())] * 12
    assert 2 <= most_at_once([tuple(map(float, run.stdout.split())) for run in runs]) <= 3
    assert of_three.taken == 0


def test_containers_need_places_too(with_places, tmp_path):
    with_places(1)
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\nexit 125\n")
    client.chmod(0o755)
    with ThreadPoolExecutor(1) as threads:
        with places.places().one():
            begun = threads.submit(Docker(str(client), "image").run, ["true"])
            time.sleep(0.3)
            assert not begun.done()
        with pytest.raises(InfrastructureError, match="not set up"):
            begun.result(30)


@boxed
def test_the_wait_for_a_place_is_no_time_of_the_run(with_places):
    """Six runs, of which the last waits longer than its own limit."""
    with_places(1)
    sandbox, began = Bubblewrap(shutil.which("bwrap")), time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        runs = list(threads.map(lambda _: sandbox.run(["sleep", "0.6"], limits=Limits(seconds=2.5)), range(6)))
    assert time.monotonic() - began > 3.5
    assert [(run.exit_code, run.findings) for run in runs] == [(0, ())] * 6 and all(run.seconds < 2.5 for run in runs)


def test_the_wait_for_a_place_is_no_time_of_a_call(with_places):
    """As `rollout.step_seconds` and `rubric.verifier_seconds` count it."""
    with_places(1)
    threads = WatchedThreads(6)
    jobs = [Job(lambda: UnsafeLocal().run(["sleep", "0.6"]).exit_code, Timer(2.5, 2.5), "step") for _ in range(6)]
    threads.run(jobs)
    threads.close()
    assert [(job.result, job.error) for job in jobs] == [(0, None)] * 6 and threads.given_up == 0


def test_a_call_that_hangs_after_it_waited_is_given_up(with_places):
    with_places(1)

    def wait_and_hang():
        with places.places().one():
            pass
        while True:
            time.sleep(0.01)

    threads = WatchedThreads(2)
    jobs = [
        Job(lambda: UnsafeLocal().run(["sleep", "0.5"]), Timer(5.0), "step"),
        Job(wait_and_hang, Timer(0.3, names=("limit", "")), "step"),
    ]
    threads.run(jobs)
    threads.close()
    assert jobs[0].result.exit_code == 0 and "over 0.3 s (limit)" in str(jobs[1].error)


def test_runs_that_raise_give_their_places_back(with_places, tmp_path):
    of_two, broken = with_places(2), Bubblewrap(str(tmp_path / "none"))
    for _ in range(5):
        with pytest.raises(InfrastructureError):
            broken.run(["true"])
    with ThreadPoolExecutor(8) as threads:
        for begun in [threads.submit(broken.run, ["true"]) for _ in range(16)]:
            with pytest.raises(InfrastructureError):
                begun.result(30)
    assert of_two.taken == 0 and UnsafeLocal().run(["true"]).exit_code == 0


def test_the_place_of_a_thread_that_is_gone_is_free(with_places, monkeypatch):
    """A thread that is told to end may hear it just as it would give its place back."""
    monkeypatch.setattr(places, "LOOK_SECONDS", 0.05)
    of_one = with_places(1)
    gone = threading.Thread(target=lambda: of_one._taken.update({"its run": threading.current_thread()}))
    gone.start()
    gone.join()
    assert of_one.taken == 1
    with of_one.one():
        assert of_one.taken == 1


def test_a_forked_process_begins_with_all_places_free(with_places):
    with_places(1)
    with places.places().one():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(20)
                with places.places().one():
                    code = 0
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_places_follow_from_the_cores():
    assert places.places().count == PLACES_PER_CORE * usable_cores()
